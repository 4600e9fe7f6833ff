package campaign_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// A proof that was signed is checked without the database, and whatever is changed in it is found;
// what is not launched is not signed.
func TestContract_C4_ASignedProof(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	run := deploy(t, db, request(t, db, 5))
	expandAll(t, db)
	var b bytes.Buffer
	if _, err := campaign.Sign(t.Context(), db.Pool(pgtest.Worker), run, key, &b); deed.CodeOf(err) != deed.Conflict || b.Len() != 0 {
		t.Fatalf("a run that goes on: %v", err)
	}
	endAll(t, db, "recipient = '"+address(campaign.Email, 0)+"'", "failed", "")
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	db.Broken() // the test's own changes stand in no audit row
	made, err := campaign.Sign(t.Context(), db.Pool(pgtest.Worker), run, key, &b)
	if err != nil || made.Counts["sent"] != 4 || made.Counts["failed"] != 1 {
		t.Fatalf("%+v %v", made, err)
	}
	text := b.String()
	if strings.Contains(text, "@") {
		t.Errorf("an address is in it: %s", text)
	}
	got, err := campaign.CheckSigned(strings.NewReader(text), public)
	if err != nil || got.Run.ID != run || got.Counts["sent"] != 4 {
		t.Fatalf("%+v %v", got, err)
	}
	lines := strings.SplitAfter(text, "\n")
	for name, bad := range map[string]string{
		"a status":      strings.Replace(text, `"failed"`, `"sent"`, 1),
		"a run":         strings.Replace(text, `"partial"`, `"completed"`, 1),
		"a member less": strings.Replace(text, lines[2], "", 1),
		"the counts":    strings.Replace(text, `"sent":4`, `"sent":5`, 1),
		"beside it":     strings.Replace(text, `{"counts"`, `{"note":"all is well","counts"`, 1),
		"twice":         strings.Replace(text, `"audit_seal"`, `"audit_seal":"9:ff","AUDIT_SEAL"`, 1),
		"the end":       strings.Join(lines[:len(lines)-2], ""),
		"nothing":       "",
		"other lines":   "{}\n{}\n",
	} {
		if bad == text {
			t.Errorf("%s: nothing was changed", name)
		}
		if _, err := campaign.CheckSigned(strings.NewReader(bad), public); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, _, _ := ed25519.GenerateKey(nil)
	if _, err := campaign.CheckSigned(strings.NewReader(text), other); err == nil || !strings.Contains(err.Error(), "not signed with a key that was given") {
		t.Errorf("another key: %v", err)
	}
}

// provenLines are those that a proof has of a run's members.
func provenLines(t testing.TB, db *pgtest.DB, run string, key ed25519.PrivateKey) string {
	t.Helper()
	return linesSignedBy(t, db.Pool(pgtest.Admin), run, key)
}

func linesSignedBy(t testing.TB, db deed.DB, run string, key ed25519.PrivateKey) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := campaign.Sign(t.Context(), db, run, key, &b); err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(strings.TrimSuffix(b.String(), "\n"), "\n")
	return lines[:strings.LastIndex(lines, "\n")+1]
}

// The lines of a proof are the same wherever it is signed, so that by their hash it is known to be of a run that was sealed elsewhere.
func TestContract_C4_AProofIsTheSameInEveryZone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, key, _ := ed25519.GenerateKey(nil)
	run := deploy(t, db, request(t, db, 3))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	db.Broken() // the test's own changes stand in no audit row
	signedIn := func(zone *time.Location) string {
		t.Helper()
		conn := db.Conn(t, pgtest.Admin)
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: zone}})
		return linesSignedBy(t, conn, run, key)
	}
	lines := signedIn(time.UTC)
	want(t, "lines that say when", strings.Count(lines, `"finished_at":"`), 3)
	want(t, "the lines, signed in Kathmandu", signedIn(time.FixedZone("Kathmandu", 5*3600+45*60)), lines)
	daysAgo(t, db, 3)
	retain(t, keeper(t, db))
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the lines of the run that is sealed", fmt.Sprintf("%x", p.MembersSHA256), fmt.Sprintf("%x", sha256.Sum256([]byte(lines))))
}

// The proof of a run by WhatsApp, whose message ids are made of numbers, has none of them, and is that of the run after everybody
// in it was erased, and once it is sealed.
func TestContract_C4_AProofOutlivesErasures(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, key, _ := ed25519.GenerateKey(nil)
	req := request(t, db, 3)
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "recipient = '"+address(campaign.Email, 0)+"'", "skipped", "cancelled")
	endAll(t, db, "true", "sent", "")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set provider_message_id = case when recipient = $1 then '1763000000.1' else 'wamid.HBgN' || encode(convert_to(recipient, 'UTF8'), 'base64') end where status = 'sent'`, address(campaign.Email, 1))
	rollUp(t, db)
	db.Broken() // the test's own changes stand in no audit row
	signed := provenLines(t, db, run, key)
	if strings.Contains(signed, "wamid.") || !strings.Contains(signed, `"1763000000.1"`) || strings.Count(signed, `"sha256:`) != 1 {
		t.Errorf("the proof names numbers, or does not name messages: %s", signed)
	}
	for n := range 3 {
		db.Exec(t, pgtest.App, askedFor, contactOf(t, db, req, n+1))
	}
	waitFor(t, "the erasures", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select deed.erase_step(100, 'keeper') = 0`) && pgtest.One[bool](t, db.Pool(pgtest.Owner), `select bool_and(erased_at is not null) from deed.channel_outbox`)
	})
	want(t, "the proof after the erasures", provenLines(t, db, run, key), signed)
	daysAgo(t, db, 3)
	retain(t, keeper(t, db))
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the lines of the run that is sealed", fmt.Sprintf("%x", p.MembersSHA256), fmt.Sprintf("%x", sha256.Sum256([]byte(signed))))
}

// A winner that is named after a run has ended, for its retry, is nobody's of that run: what is said of it stays as it was.
func TestContract_C4_AWinnerAfterTheEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	_, key, _ := ed25519.GenerateKey(nil)
	run := deploy(t, db, tested(t, db, 60, campaign.ByPerson))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	if _, err := campaign.Cancel(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	expandAll(t, db)
	rollUp(t, db)
	db.Broken() // no ledger has called anybody
	exported := func() string {
		t.Helper()
		list, err := campaign.Members(t.Context(), app, run, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, m := range list {
			fmt.Fprintln(&b, m.N, m.Status, m.Variant)
		}
		r, err := campaign.Summarise(t.Context(), app, run)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(b.String(), r.Results)
	}
	signed, before := provenLines(t, db, run, key), exported()
	if decided, err := campaign.Winner(t.Context(), app, campaign.Scope{}, run, "B", audit.Act{}); err != nil || !decided {
		t.Fatal(decided, err)
	}
	want(t, "the proof", provenLines(t, db, run, key), signed)
	want(t, "what is exported, and reported", exported(), before)
	again := retry(t, db, run, campaign.RetryOptions{Missed: true})
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	proved(t, db, again.Run)
	want(t, "members of the retry with its winner", strings.Count(provenLines(t, db, again.Run, key), `"variant":"B"`), int(again.Members))
}

// A retry of others than those who failed, or not of all of them, is found.
func TestContract_C7_VerifyFindsAnotherRetry(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	old := mixed(t, db)
	r := retry(t, db, old, campaign.RetryOptions{Missed: true})
	expandAll(t, db)
	found := func() int64 {
		t.Helper()
		p, err := campaign.Verify(t.Context(), db.Pool(pgtest.Worker), r.Run, 10)
		if err != nil {
			t.Fatal(err)
		}
		return p.Found["other retry"]
	}
	want(t, "of the retry as it is", found(), 0)
	db.Exec(t, pgtest.Owner, `alter table deed.audience_members disable trigger user; alter table deed.channel_outbox disable trigger user`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'sent', sent_at = now() where status = 'dead' and run_id = $1::text::uuid`, old)
	want(t, "of one who had been sent to", found(), 1)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'dead', sent_at = null where status = 'sent' and recipient = $2 and run_id = $1::text::uuid`, old, address(campaign.Email, 1))
	want(t, "of the retry as it was", found(), 0)
	db.Exec(t, pgtest.Owner, `update deed.audience_members m set contact_id = deed.new_id() from deed.campaign_runs r where r.id = $1::text::uuid and m.audience_id = r.audience_id and m.n = 1`, r.Run)
	want(t, "of a stranger in the place of another", found(), 2)
}
