package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

// Request asks for a run of a plan.
type Request struct {
	// Plan is the plan's id, or a Go function's name. Required.
	Plan string
	// Version is the plan's. Required by [Create]; what it is without one [Start] says.
	Version string
	// ID is the caller's own for this request: the same one asks for the same run, for the
	// tenant, the project, the environment, the plan and its version (R12). Required.
	ID string
	// Input is what encodes as a JSON object of at most 64 KiB: a struct, a map, or JSON itself as a []byte or
	// json.RawMessage. It holds references to secrets, never values. Default: {}.
	Input any
	// Project and Environment. Default: "default".
	Project, Environment string
	// PlanHash is the SHA-256 of the plan's bytes. Default: it is not pinned.
	PlanHash []byte
	// Engine is what executes it. Default: "local".
	Engine string
	// Original is the run that this one does again. Default: none.
	Original string
	// Parent and ParentStep are the run and its step whose sub-run this is. Default: none.
	Parent, ParentStep string
}

// Created is the run of a request.
type Created struct {
	ID string
	// New is false for a request that had made it before.
	New bool
}

// Create makes the run that req asks for, or finds the one that it has made, in db's
// transaction; it is the tenant's that db has set. A new run is PENDING and has no events.
// Errors: [deed.Invalid]; [deed.Conflict] for the same request with another input;
// [deed.NotFound] for an unknown original or parent; [deed.Forbidden] without a tenant.
func Create(ctx context.Context, db deed.DB, req Request) (Created, error) {
	return create(ctx, db, nil, req)
}

// CreateFor is [Create] for a tenant that db has not set, for logins that cross tenants.
func CreateFor(ctx context.Context, db deed.DB, owner tenant.ID, req Request) (Created, error) {
	return create(ctx, db, owner.String(), req)
}

func create(ctx context.Context, db deed.DB, owner any, req Request) (c Created, err error) {
	const op = "create run"
	input, err := inputOf(req)
	if err := errors.Join(err, checkOptionalID("original run", req.Original), checkOptionalID("parent run", req.Parent)); err != nil {
		return c, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Create, req.Plan, req.Version, req.ID, input, orDefault(req.Project), orDefault(req.Environment),
		req.PlanHash, sqlvalue.NullIfZero(req.Engine), sqlvalue.NullIfZero(req.Original), sqlvalue.NullIfZero(req.Parent), sqlvalue.NullIfZero(req.ParentStep), owner)
	if err == nil {
		c, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Created])
	}
	return c, wrap(op, err)
}

// inputOf is req's input as JSON.
func inputOf(req Request) (string, error) {
	var text json.RawMessage
	switch in := req.Input.(type) {
	case nil:
	case []byte:
		text = in
	case json.RawMessage:
		text = in
	default:
		var err error
		if text, err = json.Marshal(in); err != nil {
			return "", fmt.Errorf("input: %w", err)
		}
	}
	if len(text) == 0 {
		return "{}", nil
	}
	return string(text), checkJSON("input", text)
}

func orDefault(name string) string {
	if name == "" {
		return "default"
	}
	return name
}

// checkJSON refuses what the server would refuse in words that name no field.
func checkJSON(what string, data json.RawMessage) error {
	if !json.Valid(data) || !utf8.Valid(data) {
		return fmt.Errorf("%s: it is no JSON in UTF-8", what)
	}
	return nil
}

func checkID(what, id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return fmt.Errorf("%s %q: want a UUID", what, errortext.Clip(id))
	}
	return nil
}

func checkOptionalID(what, id string) error {
	if id == "" {
		return nil
	}
	return checkID(what, id)
}
