package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/config"
)

func TestParse_Streams(t *testing.T) {
	t.Parallel()
	got, err := parse(`topics:
  events: {sink: s, mode: stream, lanes: 8, ordering: none, retention: 30d, backoff: 250ms}
  orders: {sink: s, mode: stream}
  jobs: {sink: s, mode: queue, retention: 1d12h}
sinks: {s: {type: print}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Topic{
		{
			Name: "events", Sinks: []string{"s"}, Mode: "stream", Lanes: 8, Ordering: "none", Retention: 30 * 24 * time.Hour,
			Backoff: 250 * time.Millisecond, Line: 2,
		},
		{Name: "orders", Sinks: []string{"s"}, Mode: "stream", Line: 3},
		{Name: "jobs", Sinks: []string{"s"}, Mode: "queue", Retention: 36 * time.Hour, Line: 4},
	}
	if diff := cmp.Diff(want, got.Topics); diff != "" {
		t.Errorf("topics (-want +got):\n%s", diff)
	}
}

func TestParse_ProblemsOfStreams(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"mode: steam":                 `topics.a.mode: "steam" is none of queue, stream (did you mean "stream"?)`,
		"mode: stream, lanes: 65":     "topics.a.lanes: 65 is not from 1 to 64",
		"mode: stream, lanes: 0":      "topics.a.lanes: 0 is not from 1 to 64",
		"mode: stream, ordering: all": `topics.a.ordering: "all" is none of key, none`,
		"lanes: 4":                    "topics.a.lanes: only a stream has lanes; add mode: stream",
		"mode: queue, ordering: key":  "topics.a.ordering: only a stream has ordering; add mode: stream",
		"retention: 10s":              "topics.a.retention: 10s is not from 1m to 36500d",
		"retention: 7":                "topics.a.retention: 7 has no unit; write it as 30s, 5m or 1h30m",
		"retention: 1w":               `topics.a.retention: "1w" is not a duration such as 30s, 5m or 1h30m`,
		"retention: 1d-2h":            `topics.a.retention: "1d-2h" is not a duration such as 30s, 5m or 1h30m`,
		"backoff: 2h":                 "topics.a.backoff: 2h is not from 1ms to 1h",
		"backof: 1s":                  `topics.a.backof: unknown key (did you mean "backoff"?)`,
	} {
		_, err := parse("topics: {a: {sink: s, " + line + "}}\nsinks: {s: {type: print}}")
		if err == nil {
			t.Errorf("%s: no problem", line)
			continue
		}
		if diff := cmp.Diff(want, strings.TrimPrefix(err.Error(), "etc/deed.yaml:1: ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

func TestParse_WebhookBatch(t *testing.T) {
	t.Parallel()
	hook := func(line string) string {
		return "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, url: http://h, secret: env:HOOK_SECRET, " + line + "}}"
	}
	got, err := parse(hook("batch: 100"))
	if err != nil || got.Sinks["s"].Webhook.Batch != 100 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parse(hook("batch: 1001")); err == nil || err.Error() != "etc/deed.yaml:2: sinks.s.batch: 1001 is not from 1 to 1000" {
		t.Errorf("got %v", err)
	}
}
