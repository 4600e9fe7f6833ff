package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/tenant"
)

// Secrets finds the values of secrets, of which plans hold references (R9).
type Secrets interface {
	// Resolve returns the value of each of refs, such as secret://psp, as it is for that tenant in that environment, which is
	// the run's. It is asked at each attempt. An error has no value in its text.
	Resolve(ctx context.Context, refs []string, owner tenant.ID, environment string) (map[string]string, error)
}

// Secret is the value of the secret that the step's plan calls key, for the step whose code has ctx; "" where there is none.
// It stays out of what the step returns, of its errors and of its log: what has it in it is not stored, and the step has
// failed for good (SECRET_LEAK).
func Secret(ctx context.Context, key string) string {
	s, _ := runstep.From(ctx)
	return s.Secrets[key]
}

// Log is the engine's log, whose lines name the step whose code has ctx and have no value of its secrets in them. Outside of a step it
// writes nothing.
func Log(ctx context.Context) *slog.Logger {
	if s, _ := runstep.From(ctx); s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

// SecretSource says where the value of a secret stands.
type SecretSource struct {
	// Ref is the reference, such as secret://psp. Required.
	Ref string
	// Tenant and Environment are whose it is. Default: all, of which there is no source that names them.
	Tenant      *tenant.ID
	Environment string
	// From is env:NAME, a variable of the environment, or file:PATH, a file, of which the line end counts not, of either. Required.
	From string
}

// SecretSources are [Secrets] that stand in variables of the environment and in files. They are read at each attempt, so one that
// has changed is the new one. A source that names the tenant comes before one that names the environment, and that before one that names neither.
type SecretSources []SecretSource

// Resolve implements [Secrets].
func (list SecretSources) Resolve(_ context.Context, refs []string, owner tenant.ID, environment string) (map[string]string, error) {
	values := map[string]string{}
	var errs []error
	for _, ref := range refs {
		value, err := list.resolve(ref, owner, environment)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
		}
		values[ref] = value
	}
	return values, errors.Join(errs...)
}

func (list SecretSources) resolve(ref string, owner tenant.ID, environment string) (string, error) {
	best, from := -1, ""
	for _, s := range list {
		rank := 0
		if s.Tenant != nil {
			rank += 2
		}
		if s.Environment != "" {
			rank++
		}
		if s.Ref == ref && rank > best && (s.Tenant == nil || *s.Tenant == owner) && (s.Environment == "" || s.Environment == environment) {
			best, from = rank, s.From
		}
	}
	if best < 0 {
		return "", fmt.Errorf("no source of it is for tenant %s in environment %s", owner, environment)
	}
	if name, ok := strings.CutPrefix(from, "env:"); ok {
		value := strings.TrimRight(os.Getenv(name), "\r\n")
		if value == "" {
			return "", errors.New("its variable of the environment is not set, or empty")
		}
		return value, nil
	}
	path, ok := strings.CutPrefix(from, "file:")
	if !ok {
		return "", errors.New("its source is neither env:NAME nor file:PATH") // which may be the value itself
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(data), "\r\n")
	if value == "" {
		return "", errors.New("its file is empty")
	}
	return value, nil
}
