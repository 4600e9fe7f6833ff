package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/sink/webhook"
)

// usualSenders are who writes, unless it is said, where a bare id will not do.
var usualSenders = map[string]string{"smtp": "you@example.com", "whatsapp": "15005550042"}

func newSay(a *app) *cobra.Command {
	var source, from, id, address, catch string
	cmd := &cobra.Command{
		Use: "say TEXT", Short: "Write to a source as its platform would", Args: cobra.ExactArgs(1),
		Long: `Send a message to a source of deed.yaml, signed as its platform would, or to those that deed dev has itself: "dev", which
answers by mail, and "whatsapp", which answers there. deed dev mailbox shows it. To a source of mail it goes by SMTP, as
from a relay that the source trusts: this machine's address must be among those. Prints what the relay answered. The same
--id again is a repeat.`,
		Example: "  deed dev say 'where is my order?'\n  deed dev say --source support --from 42 hello\n" +
			"  deed dev say --source help --from ann@example.org 'where is my order?'",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			sources := map[string]config.Source{devWhatsAppSource.Name: devWhatsAppSource}
			maps.Copy(sources, file.Sources)
			sources[devSource] = devSourceConfig
			s, ok := sources[source]
			if !ok {
				return usagef("--source %q is not in deed.yaml; there are %s", source, strings.Join(slices.Sorted(maps.Keys(sources)), ", "))
			}
			if err := lacks(file, "sources."+source); err != nil && source != devSource {
				return err
			}
			if id == "" {
				id = uuid.New().String()
			}
			if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
				return usagef("--to %q is not an address and a port, such as 127.0.0.1:8443", address)
			}
			if usual := usualSenders[s.Type]; usual != "" && !cmd.Flags().Changed("from") {
				from = usual
			}
			if s.Type == "smtp" {
				return sayByMail(cmd.Context(), cmd.OutOrStdout(), s, address, id, from, args[0])
			}
			if address == "" {
				if address, err = publicOfDev(cmd.Context(), catch, file.Dev); err != nil {
					return err
				}
			}
			h, body, err := spoken(s, id, from, args[0], time.Now())
			if err != nil {
				return err
			}
			return say(cmd.Context(), cmd.OutOrStdout(), "http://"+address+"/in/"+source, h, body)
		},
	}
	cmd.Flags().StringVar(&source, "source", devSource, "the source's name")
	cmd.Flags().StringVar(&from, "from", "42", "who writes: a user's id (in Slack U1 or TEAM:U1), a number, or an address (by mail you@example.com, by WhatsApp 15005550042)")
	cmd.Flags().StringVar(&id, "id", "", "the platform's id of the message (default a new one)")
	cmd.Flags().StringVar(&address, "to", "", "the public address, host:port (default the running deed dev's; of a source of mail its listen)")
	cmd.Flags().StringVar(&catch, "catch-http", "", "where deed dev says that its mailbox listens; also DEED_CATCH_HTTP (default "+defaultCatchHTTP+")")
	return cmd
}

// publicOfDev is where the running deed dev is written to. One that was found at the usual
// address may be another project's, which nobody means to write to.
func publicOfDev(ctx context.Context, catch string, dev config.Dev) (string, error) {
	at := setting(catch, "DEED_CATCH_HTTP", dev.CatchHTTP, "")
	found := at == ""
	at = cmp.Or(at, defaultCatchHTTP)
	var said struct {
		Address string `json:"address"`
		Data    string `json:"data"`
	}
	if err := askCatcher(ctx, at, "/public", &said); err != nil {
		return "", err
	}
	if err := isOfProject(found, at, said.Data, dev.Data); err != nil {
		return "", err
	}
	if said.Address == "" {
		return "", fmt.Errorf("the deed dev at %s serves no sources: its deliveries are off (channels.outbox.enabled), or it has just been started", at)
	}
	return said.Address, nil
}

// isOfProject refuses a deed dev that was found, whose data are not the project's.
func isOfProject(found bool, at, data, project string) error {
	if !found || data == "" || project == "" {
		return nil
	}
	if own, err := filepath.Abs(project); err != nil || own == data {
		return err
	}
	return fmt.Errorf("the deed dev at %s is another project's: its data are in %s, and dev.data of deed.yaml is %s; give --catch-http as yours has printed it", at, data, project)
}

func say(ctx context.Context, out io.Writer, url string, h http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return usagef("--to is not an address and a port such as 127.0.0.1:8427")
	}
	req.Header = h
	answer, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("%w; is a relay running there?", errors.Unwrap(err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s\n", answer.StatusCode, strings.TrimSpace(string(text)))
	if answer.StatusCode != http.StatusOK {
		return &exitError{exitPartly, errors.New("the message was not taken, or has not ended")}
	}
	return nil
}

var whatsAppNumber = regexp.MustCompile(`^[0-9]{8,15}$`)

// spoken is the request by which a source's platform would tell of a message.
func spoken(s config.Source, id, from, text string, at time.Time) (h http.Header, body []byte, err error) {
	h = http.Header{"Content-Type": {"application/json"}}
	secret := s.Secret.Reveal()
	switch s.Type {
	case "telegram":
		user, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return nil, nil, usagef("--from %q is not a Telegram user's id, a number", from)
		}
		h.Set("X-Telegram-Bot-Api-Secret-Token", secret)
		body, err = json.Marshal(map[string]any{"update_id": numbered(id), "message": map[string]any{
			"message_id": 1, "date": at.Unix(), "text": text, "from": map[string]any{"id": user, "is_bot": false, "first_name": "dev"}, "chat": map[string]any{"id": user, "type": "private"},
		}})
		return h, body, err
	case "slack":
		team, user, ok := strings.Cut(from, ":")
		if !ok {
			team, user = "TDEV", from
		}
		body, err = json.Marshal(map[string]any{"type": "event_callback", "team_id": team, "event_id": id, "event": map[string]any{
			"type": "message", "user": user, "channel": "DDEV", "text": text, "ts": fmt.Sprintf("%d.000100", at.Unix()),
		}})
		seconds := strconv.FormatInt(at.Unix(), 10)
		h.Set("X-Slack-Request-Timestamp", seconds)
		h.Set("X-Slack-Signature", "v0="+hex.EncodeToString(hmacOf(secret, "v0:"+seconds+":"+string(body))))
	case "whatsapp":
		from = strings.TrimPrefix(from, "+") // as WhatsApp has it
		if !whatsAppNumber.MatchString(from) {
			return nil, nil, usagef("--from is not a number with its country's code, 8 to 15 digits")
		}
		message := map[string]any{"from": from, "id": id, "timestamp": strconv.FormatInt(at.Unix(), 10), "type": "text", "text": map[string]string{"body": text}}
		value := map[string]any{"messaging_product": "whatsapp", "contacts": []any{map[string]any{"wa_id": from}}, "messages": []any{message}}
		body, err = json.Marshal(map[string]any{"object": "whatsapp_business_account", "entry": []any{map[string]any{"id": "1", "changes": []any{map[string]any{"field": "messages", "value": value}}}}})
		h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(hmacOf(secret, string(body))))
	default:
		return spokenTo(s, h, id, from, text, at)
	}
	return h, body, err
}

// spokenTo is the request of who sends to a webhook source.
func spokenTo(s config.Source, h http.Header, id, from, text string, at time.Time) (http.Header, []byte, error) {
	fields := map[string]any{}
	for _, f := range []struct{ place, value string }{
		{cmp.Or(s.Fields.ID, "header:webhook-id"), id}, {s.Fields.Sender, from}, {s.Fields.Text, text}, {s.Fields.ReplyTo, from},
	} {
		if name, ok := strings.CutPrefix(f.place, "header:"); ok {
			h.Set(name, f.value)
		} else if f.place != "" && !put(fields, strings.Split(strings.TrimPrefix(f.place, "$."), "."), f.value) {
			return nil, nil, usagef("a message in which something stands at %s cannot be made; want $.a.b", f.place)
		}
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	secret, seconds := s.Secret.Reveal(), strconv.FormatInt(at.Unix(), 10)
	sig := s.Signature
	if sig.Scheme != "hmac" {
		signer, err := webhook.NewSigner(secret, "")
		if err != nil {
			return nil, nil, err
		}
		signer.Sign(h, id, at, body)
		return h, body, nil
	}
	if sig.Timestamp != "" {
		h.Set(sig.Timestamp, seconds)
	}
	signed := strings.NewReplacer("{timestamp}", seconds, "{body}", string(body)).Replace(cmp.Or(sig.Signed, "{body}"))
	for strings.Contains(signed, "{header:") {
		before, rest, _ := strings.Cut(signed, "{header:")
		name, after, _ := strings.Cut(rest, "}")
		signed = before + h.Get(name) + after
	}
	sum := hmacOf(secret, signed)
	text = hex.EncodeToString(sum)
	if sig.Encoding == "base64" {
		text = base64.StdEncoding.EncodeToString(sum)
	}
	h.Set(sig.Header, sig.Prefix+text)
	return h, body, nil
}

// put sets a value within objects, and reports whether names alone lead there.
func put(object map[string]any, path []string, value string) bool {
	for i, name := range path {
		if name == "" || strings.ContainsAny(name, "[]$") {
			return false
		}
		if i == len(path)-1 {
			object[name] = value
			return true
		}
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		object = inner
	}
	return false
}

// numbered is an id as a number: itself, or one that is made of it.
func numbered(id string) int64 {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return n
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	return int64(h.Sum64() >> 12)
}

func hmacOf(secret, text string) []byte {
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(text))
	return sum.Sum(nil)
}
