package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/postmark"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/sendgrid"
	"github.com/deedhq/deed/provider/ses"
	"github.com/deedhq/deed/provider/slack"
	"github.com/deedhq/deed/provider/smtp"
	"github.com/deedhq/deed/provider/stub"
	"github.com/deedhq/deed/provider/telegram"
	"github.com/deedhq/deed/provider/twilio"
	"github.com/deedhq/deed/provider/webhook"
	"github.com/deedhq/deed/provider/whatsapp"
)

// outboxSettings are channels.outbox.* as flags; each is also an environment
// variable and a key of deed.yaml.
type outboxSettings struct{ flags config.Outbox }

// outboxFlag is a setting's flag, where it is kept, and its default.
type outboxFlag struct {
	name, usage, otherwise string
	of                     func(*config.Outbox) *string
}

var outboxFlags = []outboxFlag{
	{"enabled", "attempt deliveries: true or false", "false", func(o *config.Outbox) *string { return &o.Enabled }},
	{"poll-interval-seconds", "how often to look for deliveries when there are none", "1", func(o *config.Outbox) *string { return &o.PollIntervalSeconds }},
	{"claim-batch-size", "the most deliveries a claim takes", "200", func(o *config.Outbox) *string { return &o.ClaimBatchSize }},
	{"lock-timeout-seconds", "how long a claim lasts unless it is renewed; a call still under way then is in doubt", "60", func(o *config.Outbox) *string { return &o.LockTimeoutSeconds }},
	{"max-attempts", "known failures before a delivery is dead, unless it has a number of its own", "5", func(o *config.Outbox) *string { return &o.MaxAttempts }},
	{"base-retry-seconds", "the pause after the first failure; it doubles", "5", func(o *config.Outbox) *string { return &o.BaseRetrySeconds }},
	{"jitter-min", "the least factor of a pause", "0.5", func(o *config.Outbox) *string { return &o.JitterMin }},
	{"jitter-max", "the greatest factor of a pause", "1", func(o *config.Outbox) *string { return &o.JitterMax }},
	{"retention-days", "remove what was delivered so long ago, and forget its key; '' for never", "", func(o *config.Outbox) *string { return &o.RetentionDays }},
	{"content-retention-days", "remove files that attachments named and nothing needs when they were last used so long ago; at most --channels-outbox-retention-days, or 2; '' for 30, or what it may be at most", "", func(o *config.Outbox) *string { return &o.ContentRetentionDays }},
}

func (s *outboxSettings) add(cmd *cobra.Command) {
	for _, f := range outboxFlags {
		otherwise := ""
		if f.otherwise != "" {
			otherwise = " (default " + f.otherwise + ")"
		}
		cmd.Flags().StringVar(f.of(&s.flags), "channels-outbox-"+f.name, "", f.usage+"; also "+outboxEnv(f.name)+otherwise)
	}
}

// mostDays is a hundred years, as in the file.
const mostDays = 36500

// options picks every setting: flag, environment, file, default.
func (s *outboxSettings) options(cmd *cobra.Command, file config.Outbox) (enabled bool, opts delivery.Options, err error) {
	var errs []error
	value := map[string]string{}
	for _, f := range outboxFlags {
		value[f.name] = config.Pick(*f.of(&s.flags), cmd.Flags().Changed("channels-outbox-"+f.name), os.Getenv(outboxEnv(f.name)), *f.of(&file), f.otherwise)
	}
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(value[name], 64)
		if ok := v > 0 && v <= 1e9; err != nil || !ok { // NaN is neither
			errs = append(errs, fmt.Errorf("--channels-outbox-%s %q is not a number above 0", name, value[name]))
			return 0
		}
		return v
	}
	whole := func(name string) int {
		v := number(name)
		if v != math.Trunc(v) {
			errs = append(errs, fmt.Errorf("--channels-outbox-%s %q is not a whole number", name, value[name]))
		}
		return int(v)
	}
	days := func(name string) time.Duration {
		v := whole(name)
		if v > mostDays {
			errs = append(errs, fmt.Errorf("--channels-outbox-%s %q is more than %d", name, value[name], mostDays))
		}
		return time.Duration(min(v, mostDays)) * 24 * time.Hour
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name) * float64(time.Second)) }
	if enabled, err = strconv.ParseBool(value["enabled"]); err != nil {
		errs = append(errs, fmt.Errorf("--channels-outbox-enabled %q is neither true nor false", value["enabled"]))
	}
	opts = delivery.Options{
		PollInterval: seconds("poll-interval-seconds"), ClaimBatch: whole("claim-batch-size"), Lease: seconds("lock-timeout-seconds"),
		MaxAttempts: whole("max-attempts"), BaseRetry: seconds("base-retry-seconds"), JitterMin: number("jitter-min"), JitterMax: number("jitter-max"),
	}
	if value["retention-days"] != "" {
		opts.Retention = days("retention-days")
	}
	if value["content-retention-days"] != "" {
		opts.ContentRetention = days("content-retention-days")
	}
	if most := max(opts.Retention, 48*time.Hour); opts.Retention > 0 && opts.ContentRetention > most {
		errs = append(errs, fmt.Errorf("channels.outbox.content_retention_days %s is more than retention_days %s: an erasure would not find the files of deliveries that are gone; make it %d at most, or leave it out",
			value["content-retention-days"], value["retention-days"], most/(24*time.Hour)))
	}
	if errs != nil {
		return false, opts, &exitError{exitUsage, errors.Join(errs...)}
	}
	return enabled, opts, nil
}

// providers makes the providers of a file. They connect to nothing.
func providers(file *config.Config) (map[string]delivery.ProviderOptions, error) {
	list := map[string]delivery.ProviderOptions{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		c := file.Providers[name]
		if err := file.Lacks("providers." + name); err != nil {
			errs = append(errs, err)
			continue
		}
		p, err := provider(c)
		if err != nil {
			errs = append(errs, ofFile(file, c.Line, "providers."+name, err))
			continue
		}
		list[name] = delivery.ProviderOptions{
			Provider: p, Concurrency: c.Concurrency, PerLane: c.PerLane, Hanging: c.Hanging, Timeout: c.Timeout, GiveUpAfter: c.GiveUpAfter, Defer: c.Defer,
			Rate: c.Rate, Burst: c.Burst, Lanes: c.Lanes, Tenants: c.Tenants, Engagement: c.Engagement, Sandbox: c.Sandbox, VerifiedDomains: c.Verified,
		}
	}
	if errs != nil {
		closeProviders(list)
		return nil, &exitError{exitUsage, errors.Join(errs...)}
	}
	return list, nil
}

func closeProviders(list map[string]delivery.ProviderOptions) {
	for _, p := range list {
		if c, ok := p.Provider.(io.Closer); ok {
			_ = c.Close() // only idle connections are closed
		}
	}
}

func provider(c config.Provider) (delivery.Provider, error) {
	switch c.Type {
	case "smtp":
		var secured *tls.Config
		if c.TLS != nil {
			var err error
			if secured, err = c.TLS.Client(); err != nil {
				return nil, err
			}
		}
		return smtp.New(smtp.Options{
			Address: c.Address, Security: smtp.Security(c.Security), User: c.User, Password: c.Password.Reveal(), From: c.From, FromAllowed: c.FromAllowed, HeadersAllowed: c.HeadersAllowed, Hello: c.Hello,
			Account: c.Account, TLS: secured, ReturnPath: c.ReturnPath, EventSecret: c.EventSecret.Reveal(), PreviousEventSecret: c.PreviousEventSecret.Reveal(),
		})
	case "bluesky":
		return bluesky.New(bluesky.Options{
			Account: c.Account, Password: c.Password.Reveal(), Sandbox: c.Sandbox, SandboxPassword: c.SandboxPassword.Reveal(), Endpoint: c.Endpoint,
		})
	case "mastodon":
		return mastodon.New(mastodon.Options{
			Endpoint: c.Endpoint, Account: c.Account, Token: c.Token.Reveal(), Sandbox: c.Sandbox, SandboxToken: c.SandboxToken.Reveal(), MaxCharacters: c.MaxCharacters,
		})
	case "postmark":
		return postmark.New(postmark.Options{
			ServerToken: c.Token.Reveal(), MessageStream: c.MessageStream, EventUser: c.EventUser, EventPassword: c.EventPassword.Reveal(), Endpoint: c.Endpoint,
			From: c.From, FromAllowed: c.FromAllowed, HeadersAllowed: c.HeadersAllowed, Account: c.Account,
		})
	case "resend":
		return resend.New(resend.Options{APIKey: c.APIKey.Reveal(), EventSecret: c.EventSecret.Reveal(), Endpoint: c.Endpoint, From: c.From, FromAllowed: c.FromAllowed, HeadersAllowed: c.HeadersAllowed, Batch: c.Batch, Account: c.Account})
	case "sendgrid":
		return sendgrid.New(sendgrid.Options{
			APIKey: c.APIKey.Reveal(), EventKey: c.EventKey, Activity: c.Activity, Endpoint: c.Endpoint, From: c.From, FromAllowed: c.FromAllowed, HeadersAllowed: c.HeadersAllowed, Account: c.Account,
		})
	case "ses":
		return ses.New(ses.Options{
			Region: c.Region, AccessKeyID: c.AccessKeyID.Reveal(), SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken.Reveal(),
			ConfigurationSet: c.ConfigurationSet, EventTopic: c.EventTopic, Endpoint: c.Endpoint, From: c.From, FromAllowed: c.FromAllowed, HeadersAllowed: c.HeadersAllowed, Account: c.Account,
		})
	case "slack":
		return slack.New(slack.Options{Token: c.Token.Reveal(), Endpoint: c.Endpoint, Account: c.Account})
	case "stub":
		return stub.New(stub.Options{Fail: c.Fail})
	case "telegram":
		return telegram.New(telegram.Options{Token: c.Token.Reveal(), Endpoint: c.Endpoint})
	case "twilio":
		return twilio.New(twilio.Options{
			AccountSID: c.AccountSID, AuthToken: c.AuthToken.Reveal(), APIKeySID: c.APIKeySID, APIKeySecret: c.APIKeySecret.Reveal(), From: c.From,
			MessagingServiceSID: c.MessagingServiceSID, StatusCallback: c.StatusCallback, EventToken: c.EventToken.Reveal(), LookUpCalls: c.LookUpCalls, Endpoint: c.Endpoint,
		})
	case "whatsapp":
		return whatsapp.New(whatsapp.Options{Token: c.Token.Reveal(), PhoneNumberID: c.PhoneNumberID, Endpoint: c.Endpoint})
	case "webhook":
		headers := make(map[string]string, len(c.Headers))
		for name, value := range c.Headers {
			headers[name] = value.Reveal()
		}
		return webhook.New(webhook.Options{
			Secret: c.Secret.Reveal(), PreviousSecret: c.PreviousSecret.Reveal(), Hosts: c.Hosts, AllowHosts: c.AllowHosts, DropsRepeats: c.DropsRepeats,
			Headers: headers,
		})
	}
	return nil, fmt.Errorf("type %q is not known", c.Type)
}

// dispatcher is what a process needs to attempt deliveries.
type dispatcher struct {
	opts      delivery.Options // with the providers
	campaigns bool             // it composes what these owe
	readers   map[string]delivery.EventReader
	mails     map[string]delivery.MailReader
}

// newDispatcher is nil if deliveries are not to be attempted here.
func (a *app) newDispatcher(cmd *cobra.Command, settings *outboxSettings, file *config.Config, log *slog.Logger) (*dispatcher, error) {
	enabled, opts, err := settings.options(cmd, file.Outbox)
	if err != nil || !enabled {
		return nil, err
	}
	if opts.Providers, err = providers(file); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		if file.Providers[name].Type == "stub" {
			log.Warn("this provider is a stub: what it accepts is recorded as sent, and goes to nobody", "provider", name)
		}
	}
	if opts.OnNewCluster, opts.Environment, err = a.newCluster(); err != nil {
		return nil, err
	}
	if opts.Links, err = linksOf(file); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Providers)) {
		if file.Campaigns.Enabled && (opts.Links == nil || !strings.HasPrefix(file.Public.URL, "https://")) && slices.Contains(opts.Providers[name].Provider.Capabilities().Channels, delivery.Email) {
			return nil, usagef("campaigns.enabled with the provider %s, which sends e-mails: set public.url (at https) and public.link_secret, for the links by which their recipients leave what they are for", name)
		}
	}
	opts.Logger, opts.Worker = log, setting(a.worker, "DEED_WORKER", file.Worker, "")
	d := &dispatcher{opts: opts, campaigns: file.Campaigns.Enabled, readers: map[string]delivery.EventReader{}, mails: mailReaders(file, opts.Providers)}
	for name, p := range opts.Providers {
		if reader, ok := p.Provider.(delivery.EventReader); ok {
			d.readers[name] = reader
		}
	}
	return d, nil
}

// mailReaders are the providers whose mail comes back to addresses of their own.
func mailReaders(file *config.Config, list map[string]delivery.ProviderOptions) map[string]delivery.MailReader {
	readers := map[string]delivery.MailReader{}
	for name, p := range list {
		if reader, ok := p.Provider.(delivery.MailReader); ok && file.Providers[name].ReturnPath != "" {
			readers[name] = reader
		}
	}
	return readers
}

// open makes the ledger on connections of its own.
func (d *dispatcher) open(ctx context.Context, url string) (*delivery.Ledger, func(), error) {
	cfg, err := parseDatabase(url, d.opts.Worker)
	if err != nil {
		return nil, nil, err
	}
	// Each provider has two that write attempts, and one each to settle, to
	// renew and to reconcile.
	cfg.MaxConns = max(8, int32(5*len(d.opts.Providers)+2))
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	opts := d.opts
	if d.campaigns {
		opts.Composer = campaign.NewComposer(pool, liquid.Engine)
	}
	l, err := delivery.New(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return l, pool.Close, nil
}

// register makes the providers known, before the relay does: so that what says
// that it is ready can be reserved for.
func (d *dispatcher) register(ctx context.Context, url string) error {
	l, release, err := d.open(ctx, url)
	if err != nil {
		return err
	}
	defer release()
	return l.Register(ctx)
}

// providerOf makes the provider of that name, if the file has it, and its secrets are there.
func providerOf(file *config.Config, name string) (list map[string]delivery.ProviderOptions, release func(), err error) {
	list = map[string]delivery.ProviderOptions{}
	if c, ok := file.Providers[name]; ok && file.Lacks("providers."+name) == nil {
		p, err := provider(c)
		if err != nil {
			return nil, nil, &exitError{exitUsage, fmt.Errorf("provider %s: %w", name, err)}
		}
		list[name] = delivery.ProviderOptions{Provider: p}
	}
	return list, func() { closeProviders(list) }, nil
}

// withLedger runs fn with a ledger that attempts nothing.
func (a *app) withLedger(ctx context.Context, fn func(*delivery.Ledger, *pgxpool.Pool) error) error {
	return a.withLedgerOf(ctx, "", fn)
}

// withLedgerOf runs fn with a ledger that attempts nothing, and knows what the
// provider of that name refuses, if deed.yaml has it, and its secrets are there.
func (a *app) withLedgerOf(ctx context.Context, name string, fn func(*delivery.Ledger, *pgxpool.Pool) error) error {
	pool, err := a.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	l, release, err := a.ledgerOf(ctx, pool, name)
	if err != nil {
		return err
	}
	defer release()
	return fn(l, pool)
}

// ledgerOf is the ledger of [app.withLedgerOf].
func (a *app) ledgerOf(ctx context.Context, pool *pgxpool.Pool, name string) (*delivery.Ledger, func(), error) {
	file, err := a.config()
	if err != nil {
		return nil, nil, err
	}
	list, release, err := providerOf(file, name)
	if err != nil {
		return nil, nil, err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: list})
	if err != nil {
		release()
		return nil, nil, err
	}
	return l, release, nil
}
