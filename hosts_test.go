package deed_test

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// realHosts are hosts of services that tests name: each is compared, or made a name from, and
// never called, since what would call it is given a fake's address.
var realHosts = regexp.MustCompile(`^(` + strings.Join([]string{
	`(email|sns)\.[a-z0-9-]+\.amazonaws\.(com|com\.cn|eu)`, `(sns|s3)\.amazonaws\.com`, // SES's endpoints by region, and whose certificates are believed
	`internal\.amazon\.com`, // a namespace in the names of AWS's errors
	`www\.twilio\.com`,      // a page that Twilio's errors name
	`mycompany\.com`,        // of a signature that Twilio documents
	`evilexample\.org`,      // is not among *.example.org, and refused
	`xn--mnchen-3ya\.de`,    // how a name is written
}, "|") + `)$`)

var (
	urls         = regexp.MustCompile("(?i)\\b(?:https?|wss?|smtps?|nats|tls|amqps?)://(?:[^\\s/@\"'`<>]*@)?(\\[[0-9a-f:.]+\\]|[a-z0-9][a-z0-9.-]*)")
	exampleHosts = regexp.MustCompile(`(^|\.)(example|test|invalid|localhost|example\.(com|org|net))$`)
)

// No test names a host of somebody's: hosts are examples (RFC 2606), this machine, addresses that
// nobody else has, or those of realHosts. Fakes of services are tests, too.
func TestHosts_NoneIsReal(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !isOfTests(path):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range urls.FindAllStringSubmatch(string(text), -1) {
			seen++
			if host := strings.ToLower(strings.TrimRight(m[1], ".-")); !isNobodys(host) {
				t.Errorf("%s names the host %s: use one of RFC 2606, or say in realHosts why it is not called", path, host)
			}
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d hosts were looked at: %v", seen, err)
	}
	for host, want := range map[string]bool{
		"example.com": true, "a.example": true, "127.0.0.1": true, "[::1]": true, "192.0.2.7": true, "sns.eu-central-1.amazonaws.com": true, "db": true,
		"api.sendgrid.com": false, "example.com.evil.io": false, "notexample.com": false, "8.8.8.8": false, "sns.amazonaws.com.evil.io": false,
	} {
		if isNobodys(host) != want {
			t.Errorf("%s: %t", host, !want)
		}
	}
}

func isOfTests(path string) bool {
	path = filepath.ToSlash(path)
	return strings.HasSuffix(path, "_test.go") && path != "hosts_test.go" || slices.Contains(strings.Split(path, "/"), "testdata") || strings.HasPrefix(path, "internal/catcher/")
}

// isNobodys reports whether no test can reach anybody by a host: a name without a dot is of a
// network of one's own.
func isNobodys(host string) bool {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		a = a.Unmap()
		return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || slices.ContainsFunc([]string{
			"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", // RFC 5737 and 3849
		}, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
	}
	return !strings.Contains(host, ".") || exampleHosts.MatchString(host) || realHosts.MatchString(host)
}
