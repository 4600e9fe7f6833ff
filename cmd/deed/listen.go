package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/signing"
	"github.com/deedhq/deed/sink/webhook"
)

const (
	defaultHooks  = "127.0.0.1:9000"
	mostHookBytes = 64 << 20
	mostSeen      = 100_000 // ids that are remembered; then it forgets them all
	lastAnswers   = 2 * time.Second
)

func newListen(a *app) *cobra.Command {
	var h hooks
	var forward string
	cmd := &cobra.Command{
		Use: "listen [ADDRESS]", Short: "Receive webhooks, check their signatures and print them", Args: cobra.MaximumNArgs(1),
		Long: `Receive webhooks at ADDRESS (` + defaultHooks + `), check their signatures and print them, until Ctrl-C: a receiver for trying
things out. The answer is 204, and 401 where the signature is wrong. The secrets are those of the webhooks in deed.yaml,
unless --secret names others; with none, signatures are not checked, and each line says so.

To see what a failure does: --fail answers every request with a status, --fail-first only the first attempts at each
message, and --slow lets the sender wait. --forward hands the requests on as they came and answers as that receiver does.`,
		Example: `  deed listen
  deed listen 127.0.0.1:9001 --secret env:HOOK_SECRET --json
  deed listen --fail-first 2
  deed listen --fail 503 --slow 5s
  deed listen --forward http://127.0.0.1:3000/hooks`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := h.check(cmd, forward); err != nil {
				return err
			}
			if err := h.findSecrets(a, cmd.Flags().Changed("secret")); err != nil {
				return err
			}
			address := defaultHooks
			if len(args) > 0 {
				address = args[0]
			}
			h.out = cmd.OutOrStdout()
			return h.serve(cmd.Context(), address)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&h.secrets, "secret", nil, "a secret that signs, as whsec_…, env:NAME or file:PATH; may be repeated")
	f.IntVar(&h.fail, "fail", 0, "answer with this status, 300 to 599")
	f.IntVar(&h.failFirst, "fail-first", 0, "answer with --fail (default 500) only the first so many attempts at each message")
	durationVar(cmd, &h.slow, "slow", 0, "wait so long before the answer")
	f.StringVar(&forward, "forward", "", "a URL to hand requests on to")
	f.BoolVar(&h.asJSON, "json", false, "print a line of JSON for each request")
	return cmd
}

// hooks is a receiver of webhooks. Its handler may be called by several
// goroutines at once.
type hooks struct {
	secrets   []string // none: signatures are not checked
	whose     string   // what they are, for people
	fail      int      // the status that fails a request; 0: none does
	failFirst int      // how many attempts at a message fail; 0: all, if fail is set
	slow      time.Duration
	forward   *url.URL // nil: to nobody
	asJSON    bool
	out       io.Writer

	mu   sync.Mutex     // guards what follows, and lines of out
	seen map[string]int // requests that came, by webhook-id
}

// received is what came, and what was answered.
type received struct {
	At       time.Time       `json:"at"`
	Status   int             `json:"status"`             // 0: the sender did not wait for it
	Verified bool            `json:"verified"`           // false also where nothing was checked
	Error    string          `json:"error,omitempty"`    // why it was not taken
	ID       string          `json:"id"`                 // webhook-id
	Times    int             `json:"times"`              // how often it has come to this process
	Topic    string          `json:"topic,omitempty"`    // the headers of deed
	Key      string          `json:"key,omitempty"`      //
	Type     string          `json:"type,omitempty"`     //
	Attempt  string          `json:"attempt,omitempty"`  //
	Payload  json.RawMessage `json:"payload"`            // the body
	Encoding string          `json:"encoding,omitempty"` // base64, unless the payload stands as it is
}

func (h *hooks) check(cmd *cobra.Command, forward string) error {
	switch changed := cmd.Flags().Changed; {
	case changed("fail") && (h.fail < 300 || h.fail > 599):
		return usagef("--fail %d is not a status from 300 to 599", h.fail)
	case h.failFirst < 0:
		return usagef("--fail-first %d is below 0", h.failFirst)
	case h.slow < 0:
		return usagef("--slow %s is below 0", h.slow)
	case h.failFirst > 0:
		h.fail = cmp.Or(h.fail, http.StatusInternalServerError)
	}
	if forward == "" {
		return nil
	}
	u, err := url.Parse(forward)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return usagef("--forward %q is not a URL that begins with http:// or https://", forward)
	}
	h.forward = u
	return nil
}

// findSecrets replaces references by what they name; without any it takes those
// of deed.yaml.
func (h *hooks) findSecrets(a *app, given bool) error {
	if given {
		h.whose = "--secret"
		for i, text := range h.secrets {
			secret, err := secretOf(text)
			if err != nil {
				return usagef("--secret: %w", err)
			}
			h.secrets[i] = secret
		}
	} else {
		file, err := a.config()
		if err != nil {
			return err
		}
		h.whose = "the webhooks in deed.yaml"
		if h.secrets, err = fileSecrets(file); err != nil {
			return err
		}
	}
	for _, s := range h.secrets {
		if err := signing.Check(s); err != nil {
			return usagef("--secret: one of them %w", err)
		}
	}
	return nil
}

// fileSecrets are those by which webhooks of a file sign: of sinks, of providers, and of what executes messages that come in.
func fileSecrets(file *config.Config) (secrets []string, err error) {
	take := func(of ...config.Secret) {
		for _, s := range of {
			if s.Reveal() != "" && !slices.Contains(secrets, s.Reveal()) {
				secrets = append(secrets, s.Reveal())
			}
		}
	}
	for _, s := range file.Sinks {
		if s.Webhook != nil {
			err = errors.Join(err, lacks(file, "sinks."+s.Name))
			take(s.Webhook.Secret, s.Webhook.PreviousSecret)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		if p := file.Providers[name]; p.Type == "webhook" {
			err = errors.Join(err, lacks(file, "providers."+name))
			take(p.Secret, p.PreviousSecret)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Sources)) {
		e := file.Sources[name].Executor
		if e.Webhook != "" && e.Secret.Reveal() == "" { // what else the source lacks is its platform's, who signs nothing here
			err = errors.Join(err, lacks(file, "sources."+name))
		}
		take(e.Secret, e.Previous)
	}
	return secrets, err
}

// secretOf is what env:NAME or file:PATH name, or the text itself.
func secretOf(text string) (string, error) {
	if name, is := strings.CutPrefix(text, "env:"); is {
		secret := os.Getenv(name)
		if secret == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return secret, nil
	}
	if path, is := strings.CutPrefix(text, "file:"); is {
		secret, err := os.ReadFile(path)
		return strings.TrimRight(string(secret), "\r\n"), err
	}
	return text, nil
}

func (h *hooks) serve(ctx context.Context, address string) error {
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w; give another address: deed listen 127.0.0.1:9001", err)
	}
	if !h.asJSON {
		fmt.Fprintf(h.out, "listening on http://%s/, %s. Ctrl-C stops.\n", l.Addr(), h.checking())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
	}
	// What was printed as answered is answered: a sender that heard nothing would come again.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if server.Shutdown(last) != nil {
		err = server.Close()
	}
	<-ended
	return err
}

func (h *hooks) checking() string {
	switch len(h.secrets) {
	case 0:
		return "without checking signatures (give --secret, or write the webhook into deed.yaml)"
	case 1:
		return "with the secret of " + h.whose
	}
	return fmt.Sprintf("with the %d secrets of %s", len(h.secrets), h.whose)
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := received{At: time.Now().UTC(), ID: r.Header.Get("Webhook-Id")}
	got.Topic, got.Key = r.Header.Get("Deed-Topic"), r.Header.Get("Deed-Key")
	got.Type, got.Attempt = r.Header.Get("Deed-Type"), r.Header.Get("Deed-Attempt")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostHookBytes))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		got.Status = http.StatusRequestEntityTooLarge
	case err != nil:
		got.Status = http.StatusBadRequest
	default:
		got.Status, err = h.answer(r, &got, body)
	}
	if err != nil {
		got.Error = err.Error()
	}
	got.Payload, got.Encoding, _ = content(r.Header.Get("Content-Type"), body)
	if r.Context().Err() != nil {
		got.Status = 0
	}
	h.print(got, r.Header.Get("Content-Type"), body)
	if got.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		http.Error(w, err.Error(), got.Status)
		return
	}
	w.WriteHeader(got.Status)
}

// answer decides about a request whose body has come.
func (h *hooks) answer(r *http.Request, got *received, body []byte) (status int, err error) {
	if len(h.secrets) > 0 {
		if err := webhook.Verify(h.secrets, r.Header, body, 0, time.Now()); err != nil {
			return http.StatusUnauthorized, err
		}
		got.Verified = true
	}
	h.mu.Lock()
	if h.seen == nil || len(h.seen) >= mostSeen {
		h.seen = map[string]int{}
	}
	h.seen[got.ID]++
	got.Times = h.seen[got.ID]
	h.mu.Unlock()
	if h.slow > 0 {
		select {
		case <-time.After(h.slow):
		case <-r.Context().Done():
			return 0, errors.New("the sender did not wait")
		}
	}
	if h.fail > 0 && (h.failFirst == 0 || got.Times <= h.failFirst) {
		return h.fail, nil
	}
	if h.forward == nil {
		return http.StatusNoContent, nil
	}
	return h.handOn(r, body)
}

// handOn posts the request to the other receiver and gives its answer. The path
// is the other's own.
func (h *hooks) handOn(r *http.Request, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, h.forward.String(), bytes.NewReader(body))
	if err != nil {
		return http.StatusBadGateway, err
	}
	request.Header = r.Header.Clone()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return http.StatusBadGateway, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, err
}

func (h *hooks) print(got received, contentType string, body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asJSON {
		_ = printJSON(h.out, got) // a terminal that is gone ends nothing
		return
	}
	parts := []string{got.At.Local().Format("15:04:05"), fmt.Sprint(cmp.Or(got.Status, http.StatusRequestTimeout)), cmp.Or(got.Topic, "-")}
	for _, p := range []struct{ name, text string }{{"type", got.Type}, {"key", got.Key}, {"id", got.ID}, {"attempt", got.Attempt}, {"error", got.Error}} {
		if p.text != "" {
			parts = append(parts, p.name+"="+clip(p.text, 200))
		}
	}
	if len(h.secrets) == 0 {
		parts = append(parts, "unchecked")
	}
	if got.Times > 1 {
		parts = append(parts, fmt.Sprintf("came %d times", got.Times))
	}
	fmt.Fprintln(h.out, strings.Join(append(parts, clip(contentLine(contentType, body), 2000)), "  "))
}
