package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/deedhq/deed/internal/pgtest"
)

// A file's bytes do not go to a terminal, which they may steer.
func TestContentShow_NotToATerminal(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	defer terminal.Close()
	var errs strings.Builder
	if code := execute(t.Context(), []string{"content", "show", strings.Repeat("0", 64), "--save", "-"}, strings.NewReader(""), terminal, &errs); code != exitUsage ||
		!strings.Contains(errs.String(), "--save - is a terminal, which a file's bytes may steer: redirect it, or name a file") {
		t.Errorf("exit status %d: %s", code, &errs)
	}
}

// onTerminal runs the program with a terminal as its standard output, and returns what that is told.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	defer far.Close()
	var locked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, far.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	go func() { // ends when near is closed
		text, _ := io.ReadAll(far) // which is no end, but EIO
		told <- string(text)
	}()
	var errs strings.Builder
	code := execute(t.Context(), args, strings.NewReader(""), near, &errs)
	_ = near.Close()
	if text := <-told; code == exitOK {
		return text
	}
	t.Fatalf("%q: %d, %s", args, code, &errs)
	return ""
}

// What is written for a file is as it is in one, and does not steer a terminal.
func TestExports_DoNotSteerATerminal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "stub", "texts")
	for _, q := range []string{
		`select deed.put_campaign('spring', '{"text": "Hello"}')`,
		`select deed.put_audience('people', 'sms')`,
		`select deed.add_audience_members(a.id, 0, '{+493012345}') from deed.audiences a`,
		`select deed.finish_audience(a.id, 1) from deed.audiences a`,
		`select deed.suppress('sms', '{+493012345}', e'a\x1b]52;c;eA==\x07\u009b2J\u202eb', 'ann')`,
		`select deed.deploy_campaign(c.id, a.id, '1', 'sms', p_options => '{"provider": "texts", "purpose": "offers"}') from deed.campaigns c, deed.audiences a`,
		`select deed.expand_job(j.id, j.claim, 'w') from deed.claim_queued_jobs('w', 10, '1 minute') j`,
	} {
		db.Exec(t, pgtest.Owner, q)
	}
	run := pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.campaign_runs`)
	for _, args := range [][]string{
		{"campaign", "export", run}, {"campaign", "export", run, "--format", "ndjson"}, {"audit", "export"},
	} {
		args = append(args, "--database-url", db.URL(pgtest.Admin))
		if got := onTerminal(t, args...); strings.ContainsAny(got, "\x1b\x07\u009b\u202e") || !strings.Contains(got, `\u009b2J\u202eb`) {
			t.Errorf("%q on a terminal: %q", args[:2], got)
		}
		var out, errs strings.Builder
		if code := execute(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitOK || !strings.Contains(out.String(), "\u009b2J\u202eb") {
			t.Errorf("%q elsewhere: %d, %q, %s", args[:2], code, &out, &errs)
		}
	}
}
