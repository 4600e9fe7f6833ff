package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// newerKeys are what systemd before 254 says that it ignores.
var newerKeys = regexp.MustCompile(`(?m)^.*Unknown (key|key name|lvalue) '(RestartSteps|RestartMaxDelaySec)'.*\n`)

func TestUnit_SystemdAcceptsIt(t *testing.T) {
	t.Parallel()
	// systemd wants the program to be there.
	text := strings.ReplaceAll(read(t, unit), "/usr/bin/deed", deed(t))
	path := filepath.Join(t.TempDir(), "deed-relay.service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	if said := newerKeys.ReplaceAllString(string(out), ""); err != nil || said != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
	// 10 is no protection at all; a relay needs the network, the rest is taken away.
	out, err = exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=15", path).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	overall := regexp.MustCompile(`Overall exposure level .*: ([0-9.]+)`).FindStringSubmatch(string(out))
	if overall == nil || len(overall[1]) != 3 || overall[1] > "1.5" {
		t.Errorf("exposure %v, want at most 1.5\n%s", overall, out)
	}
}
