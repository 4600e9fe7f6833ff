package deed_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/deedhq/deed"

// floors is the house, from the ground up: a package may import what is below
// its own floor. Within the ground, pgtest stands on schema, tenant and
// pgembed.
var floors = []struct {
	floor    float64
	packages string
}{
	{0.5, `audit|page|internal/(uuid|duration)`},
	{1, `tenant|schema|internal/(pgembed|crash|breaker)`},
	{1.5, `internal/pgtest|internal/crash/(harness|process)|internal/pgembed/find`},
	{1.6, `internal/journal|internal/pgtest/cluster|internal/conformance|internal/measure`},
	{1.7, `internal/(limits|header|signing|graphemes|plaintext|document)`},
	{2, `internal/work|internal/sqlfile|internal/(sqlstate|sqlvalue)|internal/config|internal/idempotency|internal/httpcall|internal/errortext|internal/catcher|internal/signedlink|internal/runstep`},
	{2.1, `contact`},
	{2.5, `internal/(held|upkeep)`},
	{2.6, `internal/claim`},
	{2.7, `internal/stream`},
	{3, ``},
	{3.5, `internal/order`},
	{4, `admin|audit/seal|delivery|run|sink/(webhook|nats|kafka)|importer|deedsql|inbox`},
	{4.5, `run/plan|sink/sinktest|provider/providertest|internal/adapter`},
	{4.6, `inbound`},
	{4.7, `otel`},
	{5, `engine/local|campaign|inbound/smtp|doctor|provider/(bluesky|mastodon|postmark|resend|sendgrid|ses|slack|smtp|stub|telegram|twilio|webhook|whatsapp)|examples/receiver`},
	{5.5, `campaign/liquid`},
	{5.6, `campaign/file`},
	{6, `server|server/metrics`},
	{7, `cmd/deed|examples/(service|functions)|internal/crash/(campaigner|victim|deliverer|receiver|runner|starter|stepper|coder)`},
}

func floorOf(t *testing.T, pkg string) float64 {
	t.Helper()
	name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	for _, f := range floors {
		if regexp.MustCompile(`^(` + f.packages + `)$`).MatchString(name) {
			return f.floor
		}
	}
	t.Fatalf("package %s has no floor; give it one here", pkg)
	return 0
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

func listPackages(t *testing.T, args ...string) []goPackage {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// An arrow between packages only ever points down.
func TestImports_PointDown(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t, module+"/...") {
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) && floorOf(t, imported) >= floorOf(t, p.ImportPath) {
				t.Errorf("%s imports %s, which is not below it", p.ImportPath, imported)
			}
		}
	}
}

// A library user links the standard library and pgx, and nothing else.
func TestImports_LibraryLinksPgxOnly(t *testing.T) {
	t.Parallel()
	outside := map[string]bool{}
	for _, p := range listPackages(t, "-deps", module, module+"/schema", module+"/tenant", module+"/deedsql", module+"/inbox", module+"/delivery", module+"/run", module+"/campaign", module+"/sink/webhook") {
		first, _, _ := strings.Cut(p.ImportPath, "/")
		if p.Standard || !strings.Contains(first, ".") || strings.HasPrefix(p.ImportPath, module) {
			continue
		}
		outside[p.ImportPath] = true
	}
	allowed := regexp.MustCompile(`^(github\.com/jackc/|golang\.org/x/(text|sync)/|vendor/)`)
	for path := range outside {
		if !allowed.MatchString(path) {
			t.Errorf("the library links %s", path)
		}
	}
}

// A zone in a template or in an expression of a plan is read where that is computed. An image from scratch has none, nor has
// every server: the program brings them, or every delivery of the campaign and every run of the plan would fail there that was
// sound where it was deployed.
func TestImports_TemplatesBringTheirZones(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t, module+"/campaign/liquid", module+"/run/plan") {
		if !slices.Contains(p.Deps, "time/tzdata") {
			t.Errorf("%s links no time/tzdata: on a machine without zones nothing that names one can be made", p.ImportPath)
		}
	}
}

// The documentation page of each package that others may import has an example.
func TestExamples_InEveryPublicPackage(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}} {{.Dir}}{{end}}`, module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile(`(?m)^func Example`)
	for line := range strings.Lines(string(out)) {
		pkg, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.Contains(pkg, "/internal/") || strings.HasSuffix(pkg, "/examples") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "example*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(name string) bool { return example.MatchString(readText(t, name)) }) {
			t.Errorf("%s has no example", pkg)
		}
	}
}
