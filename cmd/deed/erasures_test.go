package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

func eraseSomebody(t *testing.T, db *pgtest.DB, email string, opts contact.EraseOptions) (id string) {
	t.Helper()
	app := db.Pool(pgtest.App)
	list, err := contact.Upsert(t.Context(), app, "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: email}}})
	if err == nil {
		_, err = contact.Erase(t.Context(), app, nil, list[0].ID, audit.Act{By: "ann", Reason: "asked to"}, opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list[0].ID
}

// Each erasure is recorded, on the disk before it counts as recorded, and nobody's
// address is; what comes from a record is not recorded again.
func TestErasures_AreRecordedInAFile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	name := filepath.Join(t.TempDir(), "erasures.ndjson")
	first := eraseSomebody(t, db, "canary@example.com", contact.EraseOptions{})
	eraseSomebody(t, db, "other@example.com", contact.EraseOptions{Recorded: true})
	ctx, cancel := context.WithCancel(t.Context())
	r := &relay{file: &config.Config{Erasures: config.Erasures{File: name}}, log: slog.New(slog.DiscardHandler)}
	held := errors.New("held")
	ready := make(chan error, 1)
	ready <- held
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.recordErasures(ctx, db.Pool(pgtest.Worker), func(context.Context) error {
			select {
			case err := <-ready:
				return err
			default:
				return nil
			}
		})
	}()
	// Not until it counts as recorded, which is after it stands in the file: who is
	// stopped between the two records it again.
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select bool_and(exported_at is not null) from deed.erasures`)
	}) {
		t.Fatal("nothing was recorded")
	}
	cancel()
	<-done
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var e erasureRecord
	if err := json.Unmarshal(text, &e); err != nil || e.Contact != first || len(e.Names) != 1 || e.Actor != "ann" || e.Reason != "asked to" || strings.Contains(string(text), "canary") {
		t.Errorf("recorded: %s, %v", text, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may read it: %v, %v", info, err)
	}
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), r.file.Erasures); n != 0 || err != nil {
		t.Errorf("recorded again: %d, %v", n, err)
	}
}

// What cannot be written is not recorded, and is once that is mended.
func TestErasures_WhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	eraseSomebody(t, db, "canary@example.com", contact.EraseOptions{})
	folder := t.TempDir()
	missing := config.Erasures{File: filepath.Join(folder, "none", "erasures.ndjson")}
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), missing); err == nil {
		t.Errorf("recorded %d into a folder that there is not", n)
	}
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), config.Erasures{File: filepath.Join(folder, "erasures.ndjson")}); n != 1 || err != nil {
		t.Errorf("recorded %d, %v", n, err)
	}
}

// With more waiting than one batch takes, what cannot be written is tried again after a
// while, and not at once.
func TestErasures_AFailureIsNoLoop(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for i := range recordBatch {
		eraseSomebody(t, db, fmt.Sprintf("canary%d@example.com", i), contact.EraseOptions{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	missing := config.Erasures{File: filepath.Join(t.TempDir(), "none", "erasures.ndjson")}
	r := &relay{file: &config.Config{Erasures: missing}, log: slog.New(slog.DiscardHandler)}
	tries := 0
	r.recordErasures(ctx, db.Pool(pgtest.Worker), func(context.Context) error {
		if tries++; tries == 1 { // from then on, however late it has begun
			time.AfterFunc(recordEvery/2, cancel)
		}
		return nil
	})
	if tries != 1 {
		t.Errorf("%d tries at once", tries)
	}
}

// A tenant that is being removed, for whom nothing can be published, holds up nobody's
// record; in a file it is recorded.
func TestErasures_BesideTheRemovalOfATenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := eraseSomebody(t, db, "bob@example.com", contact.EraseOptions{})
	gone := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), gone, "gone"); err != nil {
		t.Fatal(err)
	}
	var list []contact.Upserted
	err := inTenant(t.Context(), db.Pool(pgtest.App), &gone, func(tx pgx.Tx) (err error) {
		list, err = contact.Upsert(t.Context(), tx, "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
		if err == nil {
			_, err = contact.Erase(t.Context(), tx, nil, list[0].ID, audit.Act{By: "ann", Reason: "asked to"}, contact.EraseOptions{Suppress: true})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.Remove(t.Context(), db.Pool(pgtest.Admin), gone, audit.Act{By: "ann", Reason: "left"}); err != nil {
		t.Fatal(err)
	}
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), config.Erasures{Topic: "erased"}); n != 1 || err != nil {
		t.Fatalf("recorded %d, %v", n, err)
	}
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(key, ' ') from deed.log`); got != id {
		t.Errorf("published: %s", got)
	}
	name := filepath.Join(t.TempDir(), "erasures.ndjson")
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), config.Erasures{File: name}); n != 1 || err != nil {
		t.Fatalf("recorded %d, %v", n, err)
	}
	text, err := os.ReadFile(name)
	var e erasureRecord
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil || e.Contact != list[0].ID || !e.Suppress {
		t.Errorf("recorded: %s, %v", text, err)
	}
}

func TestErasures_ArePublished(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := eraseSomebody(t, db, "canary@example.com", contact.EraseOptions{})
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), config.Erasures{Topic: "erased"}); n != 1 || err != nil {
		t.Fatalf("recorded %d, %v", n, err)
	}
	got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', topic, type, key, convert_from(payload, 'UTF8')::jsonb ->> 'contact') from deed.log`)
	if got != "erased contact.erased "+id+" "+id {
		t.Errorf("published: %s", got)
	}
}

// A relay whose disk is full in the middle of a record takes away what it has written of it,
// and records it once there is room.
func TestErasures_AFullDisk(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	folder := t.TempDir()
	name, file := filepath.Join(folder, "erasures.ndjson"), filepath.Join(folder, "deed.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "runs: {}\nerasures: {file: %s}\n", name), 0o600); err != nil {
		t.Fatal(err)
	}
	// Of a limit of one or two KiB, as the shell has it, some is left, and less than a record.
	had := strings.Repeat(`{"n":"1","tenant":"t","contact":"c"}`+"\n", 22)
	had += strings.Repeat(" ", 1023-100-len(had)) + "\n"
	if err := os.WriteFile(name, []byte(had), 0o600); err != nil {
		t.Fatal(err)
	}
	first := eraseSomebody(t, db, "canary@example.com", contact.EraseOptions{})
	relay := exec.CommandContext(t.Context(), "bash", "-c", `ulimit -f 1 && exec "$0" relay --config "$1" --listen 127.0.0.1:0`, filepath.Join(command(t), "deed"), file)
	relay.Env = append(os.Environ(), "GORACE="+noRaceSleep, "DEED_DATABASE_URL="+db.URL(pgtest.Worker))
	var log output
	relay.Stderr = &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	eventually(t, "the relay to say so", func() bool { return strings.Contains(log.String(), "erasures are not recorded") })
	if err := errors.Join(relay.Process.Kill(), ignoreExit(relay.Wait())); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "file too large") {
		t.Errorf("it was another reason: %s", &log)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != had {
		t.Errorf("left of the record: %q, %v", strings.TrimPrefix(string(text), had), err)
	}
	if n, err := recordOnce(t.Context(), db.Pool(pgtest.Worker), config.Erasures{File: name}); n != 1 || err != nil {
		t.Errorf("recorded %d, %v", n, err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, torn, err := readErasures(f)
	if err != nil || len(torn) > 0 || len(list) != 23 || list[22].Contact != first {
		t.Errorf("read: %v, torn %v, %v", list, torn, err)
	}
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// What stands in the file without an end gets one, and stays: a piece, of a relay that was
// killed, as a line of its own, and a whole record as one.
func TestErasures_BehindWhatHasNoEnd(t *testing.T) {
	t.Parallel()
	const whole = `{"n":"1","tenant":"t","contact":"c","names":["c"]}`
	for had, want := range map[string]string{
		"":                             "e",
		whole + "\n":                   "c e",
		whole:                          "c e",
		whole + "\n" + whole[:20]:      "c e, torn 2",
		whole[:5]:                      "e, torn 1",
		whole + "\n" + `{"n":"2","ten`: "c e, torn 2 and lost",
		"\x00\x00\x00":                 "e",
	} {
		name := filepath.Join(t.TempDir(), "erasures.ndjson")
		if err := os.WriteFile(name, []byte(had), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := writeErasures(t.Context(), name, []contact.Erasure{{N: 3, Tenant: "t", Contact: "e", Names: []string{"e"}}}); err != nil {
			t.Fatal(err)
		}
		bytes, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(bytes)
		list, torn, err := readErasures(strings.NewReader(text))
		var got []string
		for _, e := range list {
			got = append(got, e.Contact)
		}
		said := strings.Join(got, " ")
		for _, r := range torn {
			said += fmt.Sprintf(", torn %d", r.line)
			if r.lost {
				said += " and lost"
			}
		}
		if err != nil || said != want || !strings.HasPrefix(text, had) || !strings.HasPrefix(text[strings.LastIndex(text[:len(text)-1], "\n")+1:], `{"n":"3"`) {
			t.Errorf("behind %q: %s, %v, want %s; %q", had, said, err, want, text)
		}
	}
}

// Relays that write to one file at once write whole lines.
func TestErasures_ManyAtOnce(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "erasures.ndjson")
	const relays, each = 4, 25
	var all sync.WaitGroup
	for r := range relays {
		all.Go(func() {
			for i := range each {
				e := contact.Erasure{N: int64(r*each + i), Tenant: "t", Contact: fmt.Sprint(r*each + i), Reason: strings.Repeat("x", 100*i)}
				if err := writeErasures(t.Context(), name, []contact.Erasure{e, e}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, torn, err := readErasures(f)
	if err != nil || len(torn) > 0 || len(list) != 2*relays*each {
		t.Errorf("read: %d, torn %v, %v", len(list), torn, err)
	}
}
