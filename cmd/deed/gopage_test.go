package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// docs/go.md begins as it says: a module in an empty folder builds the program, and
// beside deed dev it takes an order, whose e-mail the mailbox has. As printed, but for
// the ports, which others may have.
func TestGoPage_FromAnEmptyFolder(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	named := func(pattern string) []string {
		t.Helper()
		found := regexp.MustCompile("(?s)" + pattern).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return found[1:]
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	dev := startWith(t, []string{"DEED_DATA=" + filepath.Join(dir, "data")}, "", "dev")
	url := dev.prints(&dev.out, `export DEED_DATABASE_URL='([^']+)'\n`)
	mailbox := strings.Fields(dev.prints(&dev.out, `  deed (dev mailbox.*)\n`))
	post := dev.prints(&dev.errOut, `provider=smtp .*account=(\S+)`)

	// The module.
	shop := filepath.Join(dir, "shop")
	program, err := os.ReadFile("../../examples/service/main.go")
	if err == nil {
		err = os.Mkdir(shop, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(shop, "main.go"), program, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	made := named("`(go mod edit -replace [^`]*=)PATH`, .*`(go get [^`]*)` and `(go mod tidy)`")
	module := exec.CommandContext(t.Context(), "bash", "-euc", strings.Join([]string{
		"go mod init example.com/shop", made[0] + root, made[1], made[2], "go build -o shop .",
	}, "\n"))
	module.Dir = shop
	if out, err := module.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// The program, beside deed dev.
	address := freeAddress(t)
	script := named("with URL as `deed dev` printed it:\n\n```sh\n(.*?)```")[0]
	for _, r := range [][2]string{{"127.0.0.1:8425", post}, {"go run ./examples/service", "exec ./shop"}} {
		if !strings.Contains(script, r[0]) {
			t.Fatalf("the page's commands have no %s", r[0])
		}
		script = strings.ReplaceAll(script, r[0], r[1])
	}
	var said output
	service := exec.CommandContext(t.Context(), "bash", "-euc", script)
	service.Dir, service.Stdout, service.Stderr = shop, &said, &said
	service.Env = append(os.Environ(), "URL="+url, "LISTEN="+address, "PATH="+filepath.Dir(pgtest.PsqlPath(t))+":"+os.Getenv("PATH"))
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = service.Process.Signal(syscall.SIGTERM)
		if err := service.Wait(); err != nil || t.Failed() {
			t.Errorf("the service ended with %v:\n%s", err, &said)
		}
	}()
	eventually(t, "the service to be ready", func() bool { return get("http://"+address+"/readyz") == 200 })
	order := named("`curl -d '([^']*)' http://127.0.0.1:8080(/orders)`")
	answer, err := http.Post("http://"+address+order[1], "application/x-www-form-urlencoded", strings.NewReader(order[0])) // as curl has it
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		t.Fatalf("the order was answered with %d", answer.StatusCode)
	}
	eventually(t, "the e-mail", func() bool { return strings.Contains(deedOK(t, url, mailbox...), "Your order o-1") })
}
