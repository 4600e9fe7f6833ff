package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

func TestNew_AllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Options{
		Brokers: []string{"kafka", "kafka:0", "kafka:9092"}, Topic: "a/b", Compression: "zip", Timeout: 1, MaxBytes: 1, MaxPending: -1,
		BatchSize: -1, SASL: SASL{Mechanism: "gssapi", Password: "hunter2"},
	})
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		`"kafka" is not host:port`, `"kafka:0" is not host:port`, `Topic "a/b"`, `Compression "zip"`, "Timeout", "MaxBytes", "MaxPending",
		"BatchSize", `SASL.Mechanism "gssapi"`, "User and Password",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is repeated: %v", err)
	}
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "Brokers is empty") {
		t.Errorf("no options: %v", err)
	}
}

// New connects to nothing, and so works while the brokers are away.
func TestNew_ConnectsToNothing(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if outcomes := s.Deliver(t.Context(), []deed.Message{{Topic: "t"}}); !deed.IsUnavailable(outcomes[0]) {
		t.Errorf("got %v", outcomes)
	}
}

// An hour is what a configuration may have.
func TestNew_LongTimeout(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
