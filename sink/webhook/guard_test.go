package webhook

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1": "loopback", "127.255.0.9": "loopback", "::1": "loopback",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "zone", "2600::1%eth0": "zone",
		"169.254.169.254": "metadata", "168.63.129.16": "metadata", "100.100.100.200": "metadata", "fd00:ec2::254": "metadata",
		"100.64.0.1": "carrier", "100.127.255.255": "carrier", "0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast",
		"240.0.0.1": "reserved", "192.0.0.1": "protocol", "198.18.0.1": "benchmarking", "198.19.255.255": "benchmarking",
		"fc00::1": "unique local", "fdab::1": "unique local", "fec0::1": "site-local",
		"::ffff:10.0.0.1": "private", "::ffff:127.0.0.1": "loopback", "::10.0.0.1": "IPv4-compatible", "::7f00:1": "IPv4-compatible",
		"::ffff:0:10.0.0.1": "translated", "64:ff9b::10.0.0.1": "NAT64", "64:ff9b::a9fe:a9fe": "NAT64", "64:ff9b:1::1": "NAT64",
		"2002:0a00:0001::1": "6to4", "2002:7f00:0001::": "6to4", "2001:0:0a00:1::": "Teredo",
		// a Teredo client's address is stored with its bits inverted
		"2001:0:808:808::f5ff:fffe": "Teredo", "2a00:1::5efe:192.168.0.1": "ISATAP", "2a00:1::200:5efe:10.0.0.1": "ISATAP",
		"::8.8.8.8": "not a global", "5f00::1": "not a global", "4000::1": "not a global", "2001:db8::1": "documentation",
		"8.8.8.8": "", "1.1.1.1": "", "172.32.0.1": "", "172.15.255.255": "", "100.63.255.255": "", "100.128.0.0": "", "192.0.1.1": "",
		"198.20.0.1": "", "::ffff:8.8.8.8": "", "64:ff9b::8.8.8.8": "", "2002:808:808::1": "", "2606:4700::1111": "",
	} {
		got := forbidden(netip.MustParseAddr(addr))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("forbidden(%s) = %q, want %q", addr, got, want)
		}
	}
}

func TestGuardAllows(t *testing.T) {
	t.Parallel()
	g, err := newGuard([]string{"10.1.0.0/16", "127.0.0.1", "fd00::/8", "hooks.internal"})
	if err != nil {
		t.Fatal(err)
	}
	for resolved, want := range map[string]bool{
		"10.1.2.3:80": true, "10.2.0.1:80": false, "127.0.0.1:1": true, "127.0.0.2:1": false, "[::ffff:10.1.2.3]:80": true,
		"[fd12::1]:443": true, "[fe80::1%eth0]:443": false, "8.8.8.8:443": true, "nonsense": false,
	} {
		if err := g.check("h", resolved); (err == nil) != want {
			t.Errorf("check(%s) = %v, want allowed %v", resolved, err, want)
		}
	}
}

func TestGuardInTheDialer(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	srv := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	for _, tt := range []struct {
		name, url string
		allow     []string
		want      string
	}{
		{"AddressIsRefused", "http://127.0.0.1" + port, nil, "attempt"},
		{"NameIsRefusedByItsAddress", "http://localhost" + port, nil, "attempt"},
		{"NumberFormIsRefused", "http://[::ffff:127.0.0.1]" + port, nil, "attempt"},
		{"OtherNameAllowsNothing", "http://localhost" + port, []string{"localhost.example"}, "attempt"},
		{"NameIsAllowed", "http://LOCALHOST" + port, []string{"localhost"}, "delivered"},
		{"NameWithADotIsAllowed", "http://localhost" + port, []string{"Localhost."}, "delivered"},
		{"AddressIsAllowed", "http://127.0.0.1" + port, []string{"127.0.0.1"}, "delivered"},
		{"RangeAllowsAName", "http://localhost" + port, []string{"127.0.0.0/8"}, "delivered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, tt.url, func(o *Options) { o.AllowHosts = tt.allow; o.Breaker.Failures = 1 })
			err := deliverOne(t, s, testMessage())
			if got := kindOf(err); got != tt.want {
				t.Fatalf("outcome = %s (%v), want %s", got, err, tt.want)
			}
			if err != nil && (!strings.Contains(err.Error(), "loopback") || !strings.Contains(err.Error(), "host")) {
				t.Errorf("error %q names neither host nor rule", err)
			}
			if s.State() != "closed" {
				t.Errorf("breaker is %s; a refused address is no outage", s.State())
			}
		})
	}
	t.Cleanup(func() {
		if n := requests.Load(); n != 4 {
			t.Errorf("%d requests arrived, want 4", n)
		}
	})
}

// nameServer is a resolver that answers every question for an IPv4 address
// with what next returns.
func nameServer(t *testing.T, next func() [][4]byte) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { // ends when the resolver closes its side
			defer server.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(server, q); err != nil {
					return
				}
				if _, err := server.Write(answerTo(q, next)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// answerTo makes the answer to a question with one name, with its length.
func answerTo(q []byte, next func() [][4]byte) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5 // the root label, type and class
	isA := binary.BigEndian.Uint16(q[end-4:]) == 1
	a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if isA {
		for _, addr := range next() {
			a[7]++
			a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			a = append(a, addr[:]...)
		}
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)
}

// A name that passes a check and then resolves to an address inside must not
// get through: there is no look-up between the check and the connect.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var requests, lookups atomic.Int32
	srv := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	s := newSink(t, "http://rebind.example"+port, func(o *Options) { o.AllowHosts = nil })
	g := &guard{resolver: nameServer(t, func() [][4]byte {
		if lookups.Add(1) == 1 {
			return [][4]byte{{240, 0, 0, 1}}
		}
		return [][4]byte{{127, 0, 0, 1}}
	})}
	s.transport.DialContext = g.dialer("rebind.example", time.Minute)
	for _, rule := range []string{"240.0.0.1", "127.0.0.1", "127.0.0.1"} {
		if err := deliverOne(t, s, testMessage()); kindOf(err) != "attempt" || !strings.Contains(err.Error(), rule) {
			t.Errorf("outcome = %s (%v), want %s refused", kindOf(err), err, rule)
		}
	}
	if requests.Load() != 0 {
		t.Error("a request came through")
	}
	g.names = []string{"rebind.example"}
	s.transport.DialContext = g.dialer("rebind.example", time.Minute)
	if err := deliverOne(t, s, testMessage()); err != nil || requests.Load() != 1 {
		t.Errorf("with the name allowed: %v, %d requests", err, requests.Load())
	}
}

// A host with one address that is refused and one that is allowed works through
// the second, and while that is down there is an outage, not a refusal.
func TestSomeAddressesRefused(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(http.ResponseWriter, *http.Request) {})
	g, err := newGuard([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	g.resolver = nameServer(t, func() [][4]byte { return [][4]byte{{10, 0, 0, 1}, {127, 0, 0, 1}} })
	for url, want := range map[string]string{srv.URL: "delivered", nobody: "unavailable"} {
		s := newSink(t, "http://two.example"+url[strings.LastIndex(url, ":"):])
		s.transport.DialContext = g.dialer("two.example", time.Minute)
		if err := deliverOne(t, s, testMessage()); kindOf(err) != want {
			t.Errorf("outcome = %s (%v), want %s", kindOf(err), err, want)
		}
	}
}

func TestNoProxyFromTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:9")
	if s := newSink(t, "http://example.com"); s.transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}
