package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// guard decides which addresses may be connected to.
type guard struct {
	names    []string       // hosts whose addresses all pass
	prefixes []netip.Prefix // addresses that pass
	resolver *net.Resolver  // nil: the default; a test brings its own
}

// refusal is what the dialer returns for an address that may not be used.
type refusal struct {
	host string
	addr string
	rule string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("host %s is refused, since its address %s is not a public one (%s): if this is meant, list the host or the address in allow_hosts", r.host, r.addr, r.rule)
}

func newGuard(allow []string) (*guard, error) {
	g := &guard{}
	var errs []error
	for _, entry := range allow {
		if addr, err := netip.ParseAddr(entry); err == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			g.prefixes = append(g.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			if prefix.Addr().Is4In6() {
				errs = append(errs, fmt.Errorf("option AllowHosts: write the range %q as IPv4", entry))
			}
			g.prefixes = append(g.prefixes, prefix.Masked())
			continue
		}
		if entry == "" || strings.ContainsAny(entry, "/:@*?#%[]\\") || strings.ContainsFunc(entry, func(r rune) bool { return r <= ' ' }) {
			errs = append(errs, fmt.Errorf("option AllowHosts: %q is no host name, IP address or CIDR range", entry))
			continue
		}
		g.names = append(g.names, hostKey(entry))
	}
	return g, errors.Join(errs...)
}

func hostKey(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// dialer returns the dial function for the endpoint's host.
func (g *guard) dialer(host string, timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	exempt := false
	for _, name := range g.names {
		exempt = exempt || name == hostKey(host)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// net/http lets a dial go on when its request has ended, so the dial has
		// its own bound.
		d := net.Dialer{Timeout: timeout, Resolver: g.resolver}
		var passed atomic.Bool // some address of the host did
		if !exempt {
			d.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
				err := g.check(host, resolved)
				passed.Store(passed.Load() || err == nil)
				return err
			}
		}
		conn, err := d.DialContext(ctx, network, addr)
		if _, refused := errors.AsType[*refusal](err); refused && passed.Load() {
			// The dialer reports its first address. Another one was allowed and
			// did not answer, and that is an outage.
			return nil, errors.New("the host's allowed addresses do not answer")
		}
		return conn, err
	}
}

// check is called between the look-up of the name and the connect, with the
// address of the connect.
func (g *guard) check(host, resolved string) error {
	ap, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return &refusal{host: host, addr: resolved, rule: "it is not an IP address and a port"}
	}
	addr := ap.Addr().Unmap()
	if addr.Zone() == "" {
		for _, prefix := range g.prefixes {
			if prefix.Contains(addr) {
				return nil
			}
		}
	}
	if rule := forbidden(addr); rule != "" {
		return &refusal{host: host, addr: addr.String(), rule: rule}
	}
	return nil
}

type rule struct {
	prefix netip.Prefix
	name   string
}

func rules(list ...string) []rule {
	out := make([]rule, 0, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		out = append(out, rule{netip.MustParsePrefix(list[i]), list[i+1]})
	}
	return out
}

// The first rule that fits names the refusal.
var forbiddenPrefixes = rules(
	// metadata services of clouds; most others are link-local
	"169.254.169.254/32", "a cloud's metadata service",
	"169.254.170.2/32", "a cloud's metadata service",
	"168.63.129.16/32", "a cloud's metadata service",
	"100.100.100.200/32", "a cloud's metadata service",
	"192.0.0.192/32", "a cloud's metadata service",
	"fd00:ec2::/32", "a cloud's metadata service",
	"fd20:ce::254/128", "a cloud's metadata service",
	"0.0.0.0/8", "unspecified address",
	"10.0.0.0/8", "private network",
	"100.64.0.0/10", "carrier-grade NAT",
	"127.0.0.0/8", "loopback",
	"169.254.0.0/16", "link-local",
	"172.16.0.0/12", "private network",
	"192.0.0.0/24", "protocol assignments",
	"192.0.2.0/24", "documentation",
	"192.88.99.0/24", "6to4 relay",
	"192.168.0.0/16", "private network",
	"198.18.0.0/15", "benchmarking",
	"198.51.100.0/24", "documentation",
	"203.0.113.0/24", "documentation",
	"224.0.0.0/4", "multicast",
	"255.255.255.255/32", "broadcast",
	"240.0.0.0/4", "reserved",
	"::/128", "unspecified address",
	"::1/128", "loopback",
	"fe80::/10", "link-local",
	"fec0::/10", "site-local",
	"fc00::/7", "unique local address",
	"ff00::/8", "multicast",
	"64:ff9b:1::/48", "local NAT64",
	"2001:db8::/32", "documentation",
	"3fff::/20", "documentation",
)

// embeddings are the IPv6 ranges whose addresses stand for an IPv4 address, and
// the byte where that begins.
var embeddings = []struct {
	prefix netip.Prefix
	at     int
	mask   byte
	name   string
}{
	{netip.MustParsePrefix("::/96"), 12, 0, "IPv4-compatible"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, 0, "IPv4-translated"},
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0, "NAT64"},
	{netip.MustParsePrefix("2002::/16"), 2, 0, "6to4"},
	{netip.MustParsePrefix("2001::/32"), 4, 0, "Teredo"},
	{netip.MustParsePrefix("2001::/32"), 12, 0xff, "Teredo"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

// forbidden returns the rule that refuses addr, or "".
func forbidden(addr netip.Addr) string {
	if addr.Zone() != "" {
		return "zone id"
	}
	addr = addr.Unmap()
	for _, r := range forbiddenPrefixes {
		if r.prefix.Contains(addr) {
			return r.name
		}
	}
	if addr.Is4() {
		return ""
	}
	raw := addr.As16()
	for _, e := range embeddings {
		if !e.prefix.Contains(addr) {
			continue
		}
		var v4 [4]byte
		for i := range v4 {
			v4[i] = raw[e.at+i] ^ e.mask
		}
		if inner := forbidden(netip.AddrFrom4(v4)); inner != "" {
			return e.name + " form of " + inner
		}
	}
	// An interface id of 0:5efe or 200:5efe is ISATAP's: an IPv4 address follows.
	if raw[8]&^2 == 0 && raw[9] == 0 && raw[10] == 0x5e && raw[11] == 0xfe {
		if inner := forbidden(netip.AddrFrom4([4]byte(raw[12:]))); inner != "" {
			return "ISATAP form of " + inner
		}
	}
	if !globalUnicast.Contains(addr) && !nat64.Contains(addr) {
		return "not a global unicast address"
	}
	return ""
}
