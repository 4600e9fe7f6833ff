package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
