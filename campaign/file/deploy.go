package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
)

// Deployed is a run that was made of a file, or had been.
type Deployed struct {
	Run       string  `json:"run_id"`
	New       bool    `json:"new"`
	RequestID string  `json:"request_id"`
	Loaded    *Loaded `json:"loaded,omitempty"` // nil: of an audience that was there
}

// Deploy loads the audience, where it is to be made of a source, and makes the run, or finds the one that the same
// request has made. [File.Check] says before what would keep it from that; Deploy does not check templates against
// data. Interrupted, the same again goes on. Errors: as [Source.Load] and [campaign.Deploy]; [deed.Invalid] for the rows of a
// query or of a segment without a RequestID, and [deed.Conflict] where they are others than those of the run that the
// request has made.
func (f *File) Deploy(ctx context.Context, db DB, opts Options) (d Deployed, err error) {
	if opts.Source != nil && opts.Source.live && opts.RequestID == "" {
		return d, &deed.Error{Op: "deploy campaign", Code: deed.Invalid, Err: fmt.Errorf(
			"%s: read again, its rows may be others, or in another order, and everybody would be written to by another run: say which run it is (--request-id)", opts.Source.Name)}
	}
	if opts.Source != nil {
		loaded, err := opts.Source.Load(ctx, db, opts.Scope, f.Request.Channel, opts.Load)
		d.Loaded = &loaded
		if err != nil {
			return d, err
		}
		opts.Audience = loaded.Audience
	}
	ctx, cancel := context.WithTimeout(ctx, loading)
	defer cancel()
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		req, err := f.put(ctx, tx, opts)
		if err != nil {
			return err
		}
		made, err := campaign.Deploy(ctx, tx, opts.Scope, req)
		d.Run, d.New, d.RequestID = made.Run, made.New, req.ID
		return err
	})
	return d, err
}

// put stores what is said, and returns the request for it.
func (f *File) put(ctx context.Context, db deed.DB, opts Options) (campaign.Request, error) {
	req := f.Request
	for _, one := range f.each() {
		made, err := campaign.Put(ctx, db, opts.Scope, f.Campaign, one.Content)
		if err != nil {
			return req, err
		}
		if req.Campaign = made.ID; len(f.Variants) == 0 {
			req.Content = made.Content
			break
		}
		if req.Variants == nil {
			req.Variants = map[string]string{}
		}
		req.Variants[one.Content.Variant] = made.Content
	}
	req.Audience, req.ID, req.ScheduledFor = opts.Audience, opts.RequestID, opts.At
	req.LocalTime = opts.LocalTime
	// The file may say what is not of this run.
	if req.LocalTime == "" {
		req.IfPassed = ""
	}
	if req.LocalTime == "" && req.QuietHours == "" {
		req.Zone = ""
	}
	if req.ID != "" {
		return req, nil
	}
	var err error
	req.ID, err = requestID(req)
	return req, err
}

// requestID is made of all that a request asks for.
func requestID(req campaign.Request) (string, error) {
	req.ScheduledFor = req.ScheduledFor.UTC().Truncate(time.Microsecond)
	text, err := json.Marshal(req)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "file sha256:" + hex.EncodeToString(sum[:]), nil
}
