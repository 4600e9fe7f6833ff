//go:build packaging

package packaging

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// helm runs the helm of make packaging.
func helm(args ...string) (string, error) {
	out, err := exec.Command(filepath.Join(root, ".cache", "bin", "helm"), append(args, "--kube-version", "1.30.0")...).CombinedOutput()
	return string(out), err
}

// rendered are the manifests that helm makes of a set of values, by kind.
func rendered(t *testing.T, set string) map[string]map[string]any {
	t.Helper()
	out, err := helm("template", "relay", filepath.Join(root, chart), "--namespace", "shop", "-f", filepath.Join(root, chart, "ci", set+"-values.yaml"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kinds := map[string]map[string]any{}
	for dec := yaml.NewDecoder(strings.NewReader(out)); ; {
		var m map[string]any
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return kinds
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if kind, _ := m["kind"].(string); kind != "" {
			kinds[kind] = m
		}
	}
}

// get follows keys and, in lists, takes the first item.
func get(t *testing.T, v any, path string) any {
	t.Helper()
	for _, key := range strings.Split(path, ".") {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		var ok bool
		if v, ok = at(v, key); !ok {
			t.Fatalf("no %s in %s", key, path)
		}
	}
	return v
}

func expect(t *testing.T, v any, path, want string) {
	t.Helper()
	got, err := json.Marshal(get(t, v, path))
	if err != nil || string(got) != want {
		t.Errorf("%s is %s, want %s (%v)", path, got, want, err)
	}
}

func TestChart_Lint(t *testing.T) {
	for _, set := range []string{"minimal", "full", "bare", "deliveries"} {
		out, err := helm("lint", "--strict", filepath.Join(root, chart), "-f", filepath.Join(root, chart, "ci", set+"-values.yaml"))
		if err != nil || !strings.Contains(out, "0 chart(s) failed") {
			t.Errorf("%s: %v\n%s", set, err, out)
		}
	}
}

func TestChart_Rendered(t *testing.T) {
	for set, kinds := range map[string]string{
		"minimal": "ConfigMap Deployment Job NetworkPolicy PodDisruptionBudget ServiceAccount",
		"full":    "ConfigMap Deployment Job NetworkPolicy PodDisruptionBudget PodMonitor Service ServiceAccount",
		"bare":    "ConfigMap Deployment",
	} {
		got := rendered(t, set)
		for _, kind := range strings.Fields(kinds) {
			if got[kind] == nil {
				t.Errorf("%s: no %s", set, kind)
			}
		}
		if len(got) != len(strings.Fields(kinds)) {
			t.Errorf("%s: %d kinds, want %s", set, len(got), kinds)
		}
		text, _ := get(t, got["ConfigMap"], "data").(map[string]any)["deed.yaml"].(string)
		if c := parsed(t, text); len(c.Topics) != 1 {
			t.Errorf("%s: deed.yaml has %d topics", set, len(c.Topics))
		}
		d := got["Deployment"]
		pod := get(t, d, "spec.template.spec")
		for _, workload := range []string{"Deployment", "Job"} {
			if got[workload] == nil {
				continue
			}
			spec := get(t, got[workload], "spec.template.spec")
			expect(t, spec, "automountServiceAccountToken", "false")
			expect(t, spec, "securityContext.runAsNonRoot", "true")
			expect(t, spec, "securityContext.seccompProfile.type", `"RuntimeDefault"`)
			expect(t, spec, "containers.securityContext.allowPrivilegeEscalation", "false")
			expect(t, spec, "containers.securityContext.readOnlyRootFilesystem", "true")
			expect(t, spec, "containers.securityContext.capabilities.drop", `["ALL"]`)
		}
		expect(t, pod, "containers.livenessProbe.httpGet.path", `"/healthz"`)
		expect(t, pod, "containers.readinessProbe.httpGet.path", `"/readyz"`)
		expect(t, pod, "terminationGracePeriodSeconds", "45")
		selector := get(t, d, "spec.selector.matchLabels").(map[string]any)
		labels := get(t, d, "spec.template.metadata.labels").(map[string]any)
		for key, v := range selector {
			if labels[key] != v {
				t.Errorf("%s: the pods lack the label %s", set, key)
			}
		}
	}

	full := rendered(t, "full")
	pod := get(t, full["Deployment"], "spec.template.spec")
	expect(t, full["Deployment"], "metadata.name", `"outbox"`)
	expect(t, pod, "serviceAccountName", `"outbox-relay"`)
	expect(t, pod, "containers.args", `["relay","--config=/etc/deed/deed.yaml","--listen=[::]:9000"]`)
	expect(t, pod, "containers.ports", `[{"containerPort":9000,"name":"health","protocol":"TCP"},{"containerPort":9443,"name":"public","protocol":"TCP"}]`)
	expect(t, full["Service"], "metadata.annotations.team", `"shop"`)
	expect(t, full["Service"], "spec.type", `"LoadBalancer"`)
	expect(t, full["Service"], "spec.ports", `[{"name":"public","port":8080,"protocol":"TCP","targetPort":"public"}]`)
	text, _ := get(t, full["ConfigMap"], "data").(map[string]any)["deed.yaml"].(string)
	if c := parsed(t, text); c.Public.Listen != "[::]:9443" || c.Public.URL != "https://hooks.shop.example" {
		t.Errorf("deed.yaml has %+v", c.Public)
	}
	for key, v := range get(t, full["Service"], "spec.selector").(map[string]any) {
		if get(t, full["Deployment"], "spec.template.metadata.labels").(map[string]any)[key] != v {
			t.Errorf("the Service selects by %s, which the pods lack", key)
		}
	}
	expect(t, pod, "containers.image", `"registry.example/deed@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"`)
	expect(t, pod, "containers.envFrom.secretRef.name", `"deed-relay"`)
	expect(t, full["PodMonitor"], "metadata.labels.release", `"prometheus"`)
	expect(t, full["PodMonitor"], "spec.podMetricsEndpoints", `[{"interval":"30s","path":"/metrics","port":"health"}]`)
	job := get(t, full["Job"], "spec.template.spec")
	expect(t, job, "containers.args", `["migrate","up"]`)
	expect(t, job, "containers.env.valueFrom.secretKeyRef", `{"key":"url","name":"deed-admin"}`)
	expect(t, full["Job"], "metadata.annotations", `{"helm.sh/hook":"pre-install,pre-upgrade","helm.sh/hook-delete-policy":"before-hook-creation,hook-succeeded","helm.sh/hook-weight":"0"}`)
	expect(t, full["NetworkPolicy"], "spec.policyTypes", `["Ingress","Egress"]`)
	expect(t, full["NetworkPolicy"], "spec.ingress", `[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}],"ports":[{"port":"health","protocol":"TCP"}]},`+
		`{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"ingress"}}}],"ports":[{"port":"public","protocol":"TCP"}]}]`)
	if n := len(get(t, full["NetworkPolicy"], "spec.egress").([]any)); n != 2 {
		t.Errorf("%d rules of egress, want names and the database", n)
	}

	minimal := rendered(t, "minimal")
	expect(t, minimal["NetworkPolicy"], "spec.ingress", `[]`)
	expect(t, get(t, minimal["Deployment"], "spec.template.spec"), "containers.ports", `[{"containerPort":8420,"name":"health","protocol":"TCP"}]`)
	expect(t, get(t, minimal["Deployment"], "spec.template.spec"), "containers.args", `["relay","--config=/etc/deed/deed.yaml","--listen=0.0.0.0:8420"]`)
	if a, b := get(t, minimal["Deployment"], "spec.template.metadata.annotations"), get(t, full["Deployment"], "spec.template.metadata.annotations"); get(t, a, "checksum/config") == get(t, b, "checksum/config") {
		t.Error("another configuration does not roll the pods")
	}
}

// A relay has work without topics, too.
func TestChart_WithoutTopics(t *testing.T) {
	text, _ := get(t, rendered(t, "deliveries")["ConfigMap"], "data").(map[string]any)["deed.yaml"].(string)
	if c := parsed(t, text); len(c.Topics) != 0 || c.Outbox.Enabled != "true" || len(c.Providers) != 1 {
		t.Errorf("deed.yaml has %d topics, %d providers and deliveries %q", len(c.Topics), len(c.Providers), c.Outbox.Enabled)
	}
	for _, set := range [][]string{
		{"--set", "config.runs.enabled=true"},
		{"--set-json", "config.runs={}"},
		{"--set", "config.campaigns.enabled=true"},
		{"--set", "config.sources.in.type=telegram,public.enabled=true"},
	} {
		args := []string{"template", "relay", filepath.Join(root, chart), "-f", filepath.Join(root, chart, "ci", "minimal-values.yaml"), "--set", "config.topics=null"}
		if out, err := helm(append(args, set...)...); err != nil {
			t.Errorf("%q: %v\n%s", set, err, out)
		}
	}
}

// What would only fail in the cluster is refused.
func TestChart_Refuses(t *testing.T) {
	for set, want := range map[string]string{
		"image.repository=":                       "the project publishes no image yet",
		"config.topics=null":                      "name what to relay",
		"config.listen=:1":                        "set listen.address",
		"config.public.listen=:1":                 "set public.enabled",
		"config.public.url=https://x.example":     "set public.enabled",
		"public.enabled=true,public.port=8420":    "public.port",
		"config.database_url=postgres://u:p@db/x": "no place for a password",
		"existingSecret=":                         "DEED_DATABASE_URL",
		"migrate.existingSecret=":                 "administrator",
		"terminationGracePeriodSeconds=20":        "terminationGracePeriodSeconds",
		"replica=3":                               "replica",
		"image.digest=sha256:1":                   "digest",
	} {
		out, err := helm("template", "relay", filepath.Join(root, chart), "-f", filepath.Join(root, chart, "ci", "minimal-values.yaml"), "--set", set)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q\n%s", set, err, want, out)
		}
	}
}

// archive is a file of dist/ for this machine's architecture.
func archive(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "dist", strings.ReplaceAll(pattern, "ARCH", runtime.GOARCH)))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", pattern, found, err)
	}
	return found[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &errs)
	}
	return string(out)
}

// contents are what the packages must hold, as modes, owners and paths.
var contents = []string{
	`-rwxr-xr-x root/root .* \./usr/bin/deed`,
	`-rw-r--r-- root/root .* \./usr/lib/systemd/system/deed-relay\.service`,
	`drwxr-x--- root/deed .* \./etc/deed/`,
	`-rw-r----- root/deed .* \./etc/deed/deed\.yaml`,
	`-rw------- root/root .* \./etc/deed/deed\.env`,
	`-rw-r--r-- root/root .* \./usr/share/bash-completion/completions/deed`,
	`-rw-r--r-- root/root .* \./usr/share/man/man1/deed-relay\.1`,
	`-rw-r--r-- root/root .* \./usr/share/doc/deed/configuration\.md`,
}

func TestDeb(t *testing.T) {
	deb := archive(t, "*_linux_ARCH.deb")
	list := output(t, "dpkg-deb", "-c", deb)
	for _, want := range contents {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(list) {
			t.Errorf("the deb lacks %s:\n%s", want, list)
		}
	}
	dir := t.TempDir()
	output(t, "dpkg-deb", "-e", deb, filepath.Join(dir, "DEBIAN"))
	files, err := os.ReadFile(filepath.Join(dir, "DEBIAN", "conffiles"))
	if err != nil || string(files) != "/etc/deed/deed.env\n/etc/deed/deed.yaml\n" {
		t.Errorf("conffiles %q %v", files, err)
	}
	for _, script := range []string{"preinst", "postinst", "prerm", "postrm"} {
		if info, err := os.Stat(filepath.Join(dir, "DEBIAN", script)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v", script, info, err)
		}
	}
	output(t, "dpkg-deb", "-x", deb, dir)
	says(t, filepath.Join(dir, "usr", "bin", "deed"))
}

// says runs a built program: it knows its version.
func says(t *testing.T, program string) {
	t.Helper()
	var meta struct{ Version string }
	text := read(t, "dist", "metadata.json")
	if err := json.Unmarshal([]byte(text), &meta); err != nil || meta.Version == "" {
		t.Fatal(text, err)
	}
	if out := output(t, program, "version"); !strings.HasPrefix(out, "deed "+meta.Version+", schema ") {
		t.Errorf("deed version: %s", out)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	output(t, "tar", "-xzf", archive(t, "*_linux_ARCH.tar.gz"), "-C", dir, "--strip-components=1")
	says(t, filepath.Join(dir, "deed"))
	for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "docs/configuration.md", "completions/deed.zsh", "man/deed.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestRPMAndChecksums(t *testing.T) {
	raw, err := os.ReadFile(archive(t, "*_linux_ARCH.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(raw, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("the rpm begins with % x", raw[:4])
	}
	cmd := exec.Command("sha256sum", "-c", "--quiet", "checksums.txt")
	cmd.Dir = filepath.Join(root, "dist")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(read(t, "dist", "checksums.txt"), "\n"); n != 8 {
		t.Errorf("%d checksums, want those of 4 archives, 2 deb and 2 rpm", n)
	}
}

// The image's build line works on what .dockerignore leaves, and the program
// runs where there is nothing else.
func TestDockerfile_BuildLine(t *testing.T) {
	m := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 .* go build .*)$`).FindStringSubmatch(read(t, "packaging", "docker", "Dockerfile"))
	if m == nil {
		t.Fatal("no go build")
	}
	dir := t.TempDir()
	// tar understands these patterns much as .dockerignore does.
	patterns := regexp.MustCompile(`(?m)^#.*\n|^\*\*/`).ReplaceAllString(read(t, ".dockerignore"), "")
	exclude := filepath.Join(dir, "exclude")
	if err := os.WriteFile(exclude, []byte(patterns), 0o600); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "src")
	script := `mkdir "$2" && git ls-files | tar -c -X "$1" -T - | tar -x -C "$2" && cd "$2" && VERSION=1.2.3 TARGETOS=linux TARGETARCH=` + runtime.GOARCH + ` && ` +
		strings.Replace(m[1], "-o /deed", `-o "$2/../deed"`, 1)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script, "bash", exclude, src)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(src, "e2e")); err == nil {
		t.Error("the ignored folder e2e is in the context")
	}
	if out := output(t, filepath.Join(dir, "deed"), "version"); !strings.HasPrefix(out, "deed 1.2.3, ") {
		t.Errorf("deed version: %s", out)
	}
	if out, _ := exec.Command("ldd", filepath.Join(dir, "deed")).CombinedOutput(); !strings.Contains(string(out), "not a dynamic executable") {
		t.Errorf("the program is not static: %s", out)
	}
}
