package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
)

// outboxOf reads channels.outbox.* as a command with these arguments would.
func outboxOf(t *testing.T, file config.Outbox, args ...string) (enabled bool, opts delivery.Options, err error) {
	t.Helper()
	var s outboxSettings
	cmd := &cobra.Command{Use: "x", RunE: func(cmd *cobra.Command, _ []string) error {
		enabled, opts, err = s.options(cmd, file)
		return nil
	}}
	s.add(cmd)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return enabled, opts, err
}

// Every setting of channels.outbox comes from a flag, else the environment,
// else the file, else its default. (No t.Parallel: it sets the environment.)
func TestContract_D10_FileEnvironmentAndFlags(t *testing.T) {
	enabled, opts, err := outboxOf(t, config.Outbox{})
	if err != nil || enabled || opts.PollInterval != time.Second || opts.ClaimBatch != 200 || opts.Lease != time.Minute || opts.MaxAttempts != 5 ||
		opts.BaseRetry != 5*time.Second || opts.JitterMin != 0.5 || opts.JitterMax != 1 || opts.Retention != 0 || opts.ContentRetention != 0 {
		t.Errorf("defaults: %t, %+v, %v", enabled, opts, err)
	}
	file := config.Outbox{
		Enabled: "true", PollIntervalSeconds: "2", ClaimBatchSize: "20", LockTimeoutSeconds: "30", MaxAttempts: "3", BaseRetrySeconds: "7",
		JitterMin: "0.7", JitterMax: "1.2", RetentionDays: "10", ContentRetentionDays: "9",
	}
	enabled, opts, err = outboxOf(t, file)
	if err != nil || !enabled || opts.PollInterval != 2*time.Second || opts.ClaimBatch != 20 || opts.Lease != 30*time.Second || opts.MaxAttempts != 3 ||
		opts.BaseRetry != 7*time.Second || opts.JitterMin != 0.7 || opts.JitterMax != 1.2 || opts.Retention != 240*time.Hour || opts.ContentRetention != 216*time.Hour {
		t.Errorf("the file's: %t, %+v, %v", enabled, opts, err)
	}
	for name, value := range map[string]string{
		"ENABLED": "false", "POLL_INTERVAL_SECONDS": "0.25", "CLAIM_BATCH_SIZE": "21", "LOCK_TIMEOUT_SECONDS": "31", "MAX_ATTEMPTS": "4",
		"BASE_RETRY_SECONDS": "8", "JITTER_MIN": "0.8", "JITTER_MAX": "1.3", "RETENTION_DAYS": "11", "CONTENT_RETENTION_DAYS": "10",
	} {
		t.Setenv("DEED_CHANNELS_OUTBOX_"+name, value)
	}
	enabled, opts, err = outboxOf(t, file)
	if err != nil || enabled || opts.PollInterval != 250*time.Millisecond || opts.ClaimBatch != 21 || opts.Lease != 31*time.Second || opts.MaxAttempts != 4 ||
		opts.BaseRetry != 8*time.Second || opts.JitterMin != 0.8 || opts.JitterMax != 1.3 || opts.Retention != 264*time.Hour || opts.ContentRetention != 240*time.Hour {
		t.Errorf("the environment's: %t, %+v, %v", enabled, opts, err)
	}
	enabled, opts, err = outboxOf(t, file, "--channels-outbox-enabled=true", "--channels-outbox-poll-interval-seconds=3", "--channels-outbox-claim-batch-size=22",
		"--channels-outbox-lock-timeout-seconds=32", "--channels-outbox-max-attempts=6", "--channels-outbox-base-retry-seconds=9",
		"--channels-outbox-jitter-min=0.9", "--channels-outbox-jitter-max=1.4", "--channels-outbox-retention-days=12", "--channels-outbox-content-retention-days=8")
	if err != nil || !enabled || opts.PollInterval != 3*time.Second || opts.ClaimBatch != 22 || opts.Lease != 32*time.Second || opts.MaxAttempts != 6 ||
		opts.BaseRetry != 9*time.Second || opts.JitterMin != 0.9 || opts.JitterMax != 1.4 || opts.Retention != 288*time.Hour || opts.ContentRetention != 192*time.Hour {
		t.Errorf("the flags': %t, %+v, %v", enabled, opts, err)
	}
	_, _, err = outboxOf(t, file, "--channels-outbox-enabled=perhaps", "--channels-outbox-max-attempts=many")
	if err == nil || !strings.Contains(err.Error(), "perhaps") || !strings.Contains(err.Error(), "max-attempts") {
		t.Errorf("wrong ones: %v", err)
	}
	// In nanoseconds these are more than there is room for: some would be a few hundred days.
	for _, days := range []string{"36501", "214000"} {
		if _, _, err = outboxOf(t, file, "--channels-outbox-retention-days="+days); err == nil || !strings.Contains(err.Error(), "is more than 36500") {
			t.Errorf("%s days: %v", days, err)
		}
	}
	// Of a file whose deliveries are gone an erasure could not tell whose it was.
	_, _, err = outboxOf(t, file, "--channels-outbox-content-retention-days=12")
	if err == nil || !strings.Contains(err.Error(), "channels.outbox.content_retention_days 12 is more than retention_days 11") {
		t.Errorf("files that outlive their deliveries: %v", err)
	}
}

// What is no number is refused where it is given, and by its name: not by the
// database, at every outcome. (No t.Parallel: it sets the environment.)
func TestOutbox_NumbersAreNumbers(t *testing.T) {
	for _, f := range outboxFlags {
		if f.name == "enabled" {
			continue
		}
		for _, bad := range []string{"NaN", "nan", "Inf", "+Inf", "-Inf", "infinity", "0", "-1", "1e300"} {
			_, _, err := outboxOf(t, config.Outbox{}, "--channels-outbox-"+f.name+"="+bad)
			if err == nil || !strings.Contains(err.Error(), "--channels-outbox-"+f.name+" "+strconv.Quote(bad)) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("--channels-outbox-%s %s: %v", f.name, bad, err)
			}
		}
	}
	for _, name := range []string{"claim-batch-size", "max-attempts", "retention-days"} {
		if _, _, err := outboxOf(t, config.Outbox{}, "--channels-outbox-"+name+"=2.5"); err == nil || !strings.Contains(err.Error(), name+` "2.5" is not a whole number`) {
			t.Errorf("--channels-outbox-%s 2.5: %v", name, err)
		}
	}
	t.Setenv("DEED_CHANNELS_OUTBOX_JITTER_MIN", "NaN")
	if _, _, err := outboxOf(t, config.Outbox{}); err == nil || !strings.Contains(err.Error(), "jitter-min") {
		t.Errorf("DEED_CHANNELS_OUTBOX_JITTER_MIN=NaN: %v", err)
	}
}
