package file

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/uuid"
)

// DB is a connection or a pool.
type DB interface {
	deed.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Options say to whom a campaign goes, and when.
type Options struct {
	Scope campaign.Scope
	// Source has the rows of the audience. Without one it is Audience.
	Source *Source
	// Audience is the id of one that is ready.
	Audience string
	// RequestID is the request's own. Default: made of all that the file says, of the audience and of when it begins, so that the
	// same again is the same run. [File.Deploy] wants one for the rows of a query or of a segment, which may be others
	// when they are read again.
	RequestID string
	// At is when the run begins. Default: now, as of the first call.
	At time.Time
	// LocalTime is when it does by each member's zone, in At's stead ([campaign.Request]).
	LocalTime string
	// IgnoreBad has [File.Check] pass over rows that are bad, as [LoadOptions.LeaveOut] will.
	IgnoreBad bool
	// Sender says why the provider sends no e-mail from whom this is, with whom answers go to, or the error that kept it from
	// looking. What is refused [File.Check] calls no_sender. Default: nobody knows.
	Sender func(ctx context.Context, from, replyTo string) (refused, err error)
	// Sample is of how many members [File.Check] makes what they would get. Default 100, at most 1000.
	Sample int
	Load   LoadOptions
}

// Missing is a name that the templates write, and that some members do not have.
type Missing struct {
	Name string `json:"name"`
	// Members is how many of those that were looked at lack it, and First the line or the number of
	// the first of these.
	Members int `json:"members"`
	First   int `json:"first"`
}

// Checked is what [File.Check] has looked at.
type Checked struct {
	Sampled int       `json:"sampled"`
	Missing []Missing `json:"missing"`
}

// mostProblems is how many rows an error names, and mostAgain at how many is looked for those that were left out before.
const (
	mostProblems = 100
	mostAgain    = 100_000
)

// Check says what would keep the campaign from being deployed, all at once, and stores nothing: rows that cannot be
// read, templates that make nothing of some members' data, and the preconditions (C8), which the
// database names: all is done as it would be, with the first members, in a transaction that is rolled back. What is
// missing of members' data is no error. Without a source and an audience it is the campaign alone
// that is checked. Of a request that has made its run nothing is wrong but bad rows.
func (f *File) Check(ctx context.Context, db DB, opts Options) (Checked, error) {
	const op = "check campaign"
	opts.Sample = cmp.Or(opts.Sample, 100)
	if opts.Sample < 1 || opts.Sample > 1000 {
		return Checked{}, &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf("a sample of %d members is not from 1 to 1000", opts.Sample)}
	}
	t := &trial{file: f, opts: opts}
	if err := t.sample(ctx, db); err != nil {
		return Checked{}, err
	}
	if err := t.deploy(ctx, db); err != nil {
		return Checked{}, err
	}
	if err := t.sender(ctx); err != nil {
		return Checked{}, err
	}
	needs, err := f.bind(t.columns())
	t.problem(0, err)
	if err == nil {
		if err := t.render(ctx, needs); err != nil {
			return Checked{}, err
		}
	}
	checked := Checked{Sampled: len(t.rows), Missing: t.missing}
	return checked, t.err(op)
}

// trial is a check that is under way.
type trial struct {
	file     *File
	opts     Options
	rows     []row // the sample
	made     bool  // the request has made its run: what would keep another from being made is nothing to it
	problems []problem
	bad      int64 // rows that are no members
	more     int   // that are not in problems
	missing  []Missing
}

// problem is one of a row, or of the campaign, whose line is 0.
type problem struct {
	line int
	err  error
}

func (t *trial) problem(line int, err error) {
	switch {
	case err == nil, t.made:
	case line > 0 && len(t.problems) >= mostProblems:
		t.more++
	default:
		t.problems = append(t.problems, problem{line, err})
	}
}

// err is all problems, those of rows in their order behind the others.
func (t *trial) err(op string) error {
	slices.SortStableFunc(t.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, p := range t.problems {
		errs = append(errs, p.err)
	}
	if t.more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", t.more))
	}
	if errs == nil {
		return nil
	}
	return &deed.Error{Op: op, Code: deed.Invalid, Err: errors.Join(errs...)}
}

// badRow is a row that is no member.
func (t *trial) badRow(line int, why string) {
	if t.bad++; !t.opts.IgnoreBad {
		t.rowProblem(line, "%s", why)
	}
}

// rowProblem is one of a row.
func (t *trial) rowProblem(line int, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if t.opts.Source == nil {
		t.problem(line, fmt.Errorf("member %d: %s", line, what))
		return
	}
	t.problem(line, fmt.Errorf("%s:%d: %s", t.opts.Source.Name, line, what))
}

func (t *trial) columns() []string {
	if t.opts.Source != nil {
		return t.opts.Source.Columns
	}
	return t.file.Columns.Data
}

// sample takes the first members, and notes all rows that are none.
func (t *trial) sample(ctx context.Context, db deed.DB) error {
	if t.opts.Source != nil {
		return t.opts.Source.each(0, func(r row) (bool, error) {
			if r.Bad != "" {
				t.badRow(r.Line, r.Bad)
			} else if len(t.rows) < t.opts.Sample {
				t.rows = append(t.rows, r)
			}
			return ctx.Err() == nil, context.Cause(ctx)
		})
	}
	if t.opts.Audience == "" {
		return nil
	}
	list, err := campaign.Sample(ctx, db, t.opts.Audience, 1, t.opts.Sample)
	for i, m := range list {
		t.rows = append(t.rows, row{Line: i + 1, Address: m.Address, Contact: m.Contact, Zone: m.Zone, Data: m.Data})
	}
	return err
}

// render makes what the sample would get, and looks for what is missing of it.
func (t *trial) render(ctx context.Context, needs []string) error {
	var messages []*campaign.Message
	said := t.file.each()
	for _, f := range said {
		message, err := f.Message()
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	lacks := map[string]*Missing{}
	for _, r := range t.rows {
		data, err := templateData(r.Data)
		if err != nil {
			t.rowProblem(r.Line, "%s", withoutOp(err))
		}
		for i := 0; i < len(messages) && err == nil; i++ {
			_, err := messages[i].Make(ctx, data, sampleLink)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			of := ""
			if name := said[i].Content.Variant; name != "" {
				of = "variant " + name + ": "
			}
			if err != nil {
				t.rowProblem(r.Line, "%s%s", of, withoutOp(err))
			}
		}
		for _, name := range needs {
			if has(data, strings.Split(name, ".")) {
				continue
			}
			if lacks[name] == nil {
				lacks[name] = &Missing{Name: name, First: r.Line}
			}
			lacks[name].Members++
		}
	}
	for _, name := range needs {
		if m := lacks[name]; m != nil {
			t.missing = append(t.missing, *m)
		}
	}
	return nil
}

// sampleLink stands for the link by which somebody leaves.
const sampleLink = "https://example.com/u/SAMPLE"

// templateData is what a template is given of a member's data.
func templateData(member json.RawMessage) (map[string]any, error) {
	if len(member) == 0 {
		member = json.RawMessage("{}")
	}
	return campaign.Data(slices.Concat([]byte(`{"contact":`), member, []byte("}")))
}

// has reports whether there is something to write under a path.
func has(data any, path []string) bool {
	for _, key := range path {
		object, ok := data.(map[string]any)
		if !ok {
			return false
		}
		data = object[key]
	}
	return data != nil && data != ""
}

// withoutOp is an error without what says which call it is of.
func withoutOp(err error) string {
	if e, ok := errors.AsType[*deed.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// sender asks whether the provider sends from whom this is.
func (t *trial) sender(ctx context.Context) error {
	q := t.file.Request
	if t.opts.Sender == nil || q.Channel != campaign.Email || q.From == "" || t.made {
		return nil
	}
	refused, err := t.opts.Sender(ctx, q.From, q.ReplyTo)
	if err == nil && refused != nil {
		t.problem(0, fmt.Errorf("%s: no_sender: %w", t.file.Name, refused))
	}
	return err
}

// deploy does all that a deployment does, and takes it back: to the audience that there is, or else to the sample.
func (t *trial) deploy(ctx context.Context, db DB) error {
	ctx, cancel := context.WithTimeout(ctx, loading)
	defer cancel()
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	opts := t.opts
	loaded, err := t.loaded(ctx, tx)
	if err != nil {
		return err
	}
	if loaded.Ready {
		opts.Audience = loaded.ID
	}
	again := loaded.LeftOut > 0 && !opts.IgnoreBad
	req, err := t.file.put(ctx, tx, opts)
	sample := ""
	if err == nil && (again || req.Audience == "") {
		sample, err = t.audience(ctx, tx, again)
	}
	if err == nil && req.Audience == "" {
		req.ID, req.Audience = "check "+uuid.New().String(), sample // the run of this request has another audience than the sample
	}
	if err == nil && again && t.bad < loaded.LeftOut {
		t.problem(0, fmt.Errorf("%s: %d of its rows are bad", opts.Source.Name, loaded.LeftOut))
	}
	if err == nil {
		err = t.request(ctx, tx, req)
	}
	if deed.CodeOf(err) == deed.Invalid || deed.CodeOf(err) == deed.NotFound || deed.CodeOf(err) == deed.Conflict {
		t.problem(0, fmt.Errorf("%s: %s", t.file.Name, withoutOp(err)))
		return nil
	}
	return err
}

// loaded is the audience that was made of the rows, or has been begun; nobody's, where there is none.
func (t *trial) loaded(ctx context.Context, tx pgx.Tx) (*campaign.Audience, error) {
	if t.opts.Source == nil {
		return &campaign.Audience{}, nil
	}
	a, channel, err := campaign.FindAudience(ctx, tx, t.opts.Scope, t.opts.Source.audience())
	if deed.CodeOf(err) == deed.NotFound || err == nil && channel != t.file.Request.Channel {
		return &campaign.Audience{}, nil
	}
	return a, err
}

// request makes the run of a request, or finds it. The zone of the file, too, is looked at where nothing of this run goes by it.
func (t *trial) request(ctx context.Context, tx pgx.Tx, req campaign.Request) error {
	var run campaign.Deployed
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) (err error) { // what is refused ends it
		run, err = campaign.Deploy(ctx, inner, t.opts.Scope, req)
		return err
	})
	if err == nil && !run.New {
		t.made = true
		return nil
	}
	if zone := t.file.Request.Zone; req.Zone != zone {
		req.ID, req.Zone, req.QuietHours = "check "+uuid.New().String(), zone, "00:00-00:01"
		if _, other := campaign.Deploy(ctx, tx, t.opts.Scope, req); other != nil {
			return other
		}
	}
	return err
}

// audience makes one of the sample, or of all rows, without those that are no members, which it notes.
func (t *trial) audience(ctx context.Context, tx pgx.Tx, all bool) (string, error) {
	a, err := campaign.OpenAudience(ctx, tx, t.opts.Scope, "check "+uuid.New().String(), t.file.Request.Channel)
	if err != nil {
		return "", err
	}
	switch {
	case t.opts.Source == nil:
		err = t.add(ctx, tx, a, []row{{Address: nobody[t.file.Request.Channel]}})
	case all:
		err = t.addAll(ctx, tx, a)
	default:
		err = t.add(ctx, tx, a, slices.Clone(t.rows))
	}
	if err != nil {
		return "", err
	}
	return a.ID, a.Finish(ctx, tx)
}

// addAll adds all rows, until as many are bad as are named.
func (t *trial) addAll(ctx context.Context, tx pgx.Tx, a *campaign.Audience) error {
	var batch []row
	n := 0
	err := t.opts.Source.each(0, func(r row) (more bool, err error) {
		if n++; r.Bad == "" {
			batch = append(batch, r)
		}
		if len(batch) == 1000 {
			err = t.add(ctx, tx, a, batch)
			batch = nil
		}
		return len(t.problems) < mostProblems && n < mostAgain, err
	})
	if err != nil {
		return err
	}
	return t.add(ctx, tx, a, batch)
}

// add adds those rows that are members, and notes the others.
func (t *trial) add(ctx context.Context, tx pgx.Tx, a *campaign.Audience, rows []row) error {
	for len(rows) > 0 {
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return a.Add(ctx, inner, members(rows)...) }) // what is refused ends it
		of, ok := errors.AsType[*campaign.MembersError](err)
		if !ok {
			return err
		}
		refused := map[int]bool{}
		for _, m := range of.Members {
			if at := int(m.N - a.Members - 1); at >= 0 && at < len(rows) {
				if deed.CodeOf(err) == deed.Invalid {
					t.badRow(rows[at].Line, m.Problem)
				} else {
					t.rowProblem(rows[at].Line, "%s", m.Problem) // a contact that is gone ends the load, whatever else is left out
				}
				refused[at] = true
			}
		}
		if len(refused) == 0 {
			return err
		}
		kept := rows[:0:0]
		for i, r := range rows {
			if !refused[i] {
				kept = append(kept, r)
			}
		}
		rows = kept
	}
	return nil
}

// nobody is who stands for an audience that was not said.
var nobody = map[campaign.Channel]string{
	campaign.Email: "nobody@example.com", campaign.SMS: "+493000000000", campaign.Voice: "+493000000000", campaign.Social: "@nobody", campaign.Chat: "nobody",
}

// Make makes what somebody would get: the payload of a delivery, of the data that templates have of them, a JSON object.
// Errors: [deed.Invalid] where a template makes nothing of them.
func (f *File) Make(ctx context.Context, member json.RawMessage, unsubscribe string) (json.RawMessage, error) {
	message, err := f.Message()
	if err != nil {
		return nil, err
	}
	data, err := templateData(f.row(member, 0).Data)
	if err != nil {
		return nil, err
	}
	return message.Make(ctx, data, unsubscribe)
}
