package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/deedhq/deed/internal/config"
)

// What the file leaves out is as the platform wants it: Slack and WhatsApp wait for three
// seconds, so they hear at once that all is well, and by mail somebody gets ten answers an hour.
func TestNewSource_WhatTypesDefaultTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "deed.yaml")
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("a_secret_of_enough_bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string]string{
		"type: telegram, secret: 'file:secret'":                                                                           " 0 chat",
		"type: telegram, secret: 'file:secret', answer: accepted":                                                         "accepted 0 chat",
		"type: slack, secret: 'file:secret'":                                                                              "accepted 0 chat",
		"type: slack, secret: 'file:secret', answer: executed":                                                            "executed 0 chat",
		"type: whatsapp, secret: 'file:secret', verify_token: 'file:secret'":                                              "accepted 0 chat",
		"type: whatsapp, secret: 'file:secret', verify_token: 'file:secret', answer: executed":                            "executed 0 chat",
		"type: webhook, secret: 'file:secret', sender: $.from":                                                            " 0 webhook",
		"type: smtp, listen: '127.0.0.1:0', addresses: [help@example.com], trusted: [127.0.0.1], names: [mx.example.com]": " 10 email",
	} {
		text := "public: {listen: '127.0.0.1:0'}\nsources: {s: {" + of + ", executor: {topic: t}, reply: {provider: p, to: 'https://example.com/'}}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := config.Load(path)
		if err != nil {
			t.Errorf("%s: %v", of, err)
			continue
		}
		s, err := newSource(file.Sources["s"])
		if err != nil {
			t.Errorf("%s: %v", of, err)
			continue
		}
		if got := fmt.Sprintf("%s %d %s", s.At, s.PerHour, s.Reply.Channel); got != want {
			t.Errorf("%s: %q, want %q", of, got, want)
		}
	}
}
