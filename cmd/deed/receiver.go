package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/inbound/smtp"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/provider/whatsapp"
	"github.com/deedhq/deed/server"
)

// receiving is what a relay needs to take inbound messages.
type receiving struct {
	opts     inbound.Options
	told     map[string]delivery.ProviderOptions // of others' providers those of whose messages WhatsApp tells this process
	links    *contact.Links                      // that people confirm by; nil: none
	pool     *pgxpool.Pool                       // once it is open
	mails    []mailServer
	events   atomic.Pointer[delivery.EventsHandler] // what providers' services say; nil: nothing, or not yet
	bounces  atomic.Pointer[delivery.Bounces]       // mail that comes back; nil: none, or not yet
	returns  func(to string) bool                   // whether mail to an address comes back to a provider
	listener net.Listener                           // of the public address; nil: others take the requests, and this one runs what they accept
}

// newReceiving is nil if nothing can come from outside: no source, no link that people
// confirm by and, of the providers that this process serves, no events.
func (a *app) newReceiving(cmd *cobra.Command, address string, file *config.Config, serves bool, log *slog.Logger) (*receiving, error) {
	address = config.Pick(address, cmd.Flags().Changed("public"), os.Getenv("DEED_PUBLIC"), file.Public.Listen, "")
	told := serves && slices.ContainsFunc(slices.Collect(maps.Values(file.Providers)), config.Provider.HasEvents)
	if len(file.Sources) == 0 && file.Public.LinkSecret.Reveal() == "" && !told {
		if address != "" {
			return nil, usagef("there is a public address, and nothing in the configuration that could come there: no sources, no provider's events, and no public.link_secret")
		}
		return nil, nil
	}
	byRequest := func(s config.Source) bool { return s.Type != "smtp" }
	needed := told || file.Public.LinkSecret.Reveal() != "" || slices.ContainsFunc(slices.Collect(maps.Values(file.Sources)), byRequest)
	if needed && address == "" && !cmd.Flags().Changed("public") {
		what := "sources"
		if len(file.Sources) == 0 {
			what = "providers' events"
		}
		return nil, usagef("there are %s, and no address that their platforms reach: give public.listen in the configuration, or --public; --public '' where only other relays take requests", what)
	}
	if serves {
		if err := file.CheckReplies(); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	r, err := a.receivingOf(file, serves, log)
	if err == nil {
		err = r.listenForMail(cmd.Context(), file)
	}
	if err != nil || address == "" {
		return r, err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usagef("--public %q is not an address and a port such as :8443", address)
	}
	if r.listener, err = server.Listen(cmd.Context(), address); err != nil {
		return nil, fmt.Errorf("%w; give another --public", err)
	}
	return r, nil
}

// receivingOf has the sources of the file, and no address.
func (a *app) receivingOf(file *config.Config, serves bool, log *slog.Logger) (*receiving, error) {
	r := &receiving{returns: returnsOf(file, serves), opts: inbound.Options{
		Sources: map[string]inbound.SourceOptions{}, Retention: file.InboundRetention, Worker: setting(a.worker, "DEED_WORKER", file.Worker, ""), Logger: log,
	}}
	var errs []error
	told := *file
	told.Providers = map[string]config.Provider{}
	for _, name := range slices.Sorted(maps.Keys(file.Sources)) {
		s, err := newSource(file.Sources[name])
		if err != nil {
			errs = append(errs, ofFile(file, file.Sources[name].Line, "sources."+name, err))
		}
		if by := s.Reply.Provider; file.Sources[name].Type == "whatsapp" && by != "" {
			switch p, ok := file.Providers[by]; {
			case p.Type == "whatsapp":
				told.Providers[by] = p
				s.Statuses = func(ctx context.Context, events []delivery.StatusEvent) error { return r.record(ctx, by, events) }
			case !ok: // another relay serves it
				log.Warn("what WhatsApp says of messages that were sent is not recorded: have this configuration name the provider, too, as the relay's that serves it does", "source", name, "provider", by)
			}
		}
		r.opts.Sources[name] = s
	}
	if errs != nil {
		return nil, &exitError{exitUsage, errors.Join(errs...)}
	}
	if !serves {
		var err error
		if r.told, err = providers(&told); err != nil {
			return nil, err
		}
	}
	links, err := linksOf(file)
	if err != nil {
		return nil, err
	}
	r.links = links
	r.opts.OnNewCluster, r.opts.Environment, err = a.newCluster()
	return r, err
}

// checkTopics says which topics the file has what this process does published to, and the
// installation takes nothing for: each message would fail.
func (r *relay) checkTopics(ctx context.Context) error {
	topics := map[string]string{}
	for name, s := range r.file.Sources {
		if s.Executor.Topic != "" {
			topics["sources."+name+".executor"] = s.Executor.Topic
		}
	}
	if topic := r.file.Erasures.Topic; topic != "" {
		topics["erasures"] = topic
	}
	if len(topics) == 0 {
		return nil
	}
	settings, err := r.operator.Settings(ctx)
	if err != nil || !settings.StrictTopics {
		return err
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(topics)) {
		if _, err := r.operator.Topic(ctx, topics[path]); deed.CodeOf(err) == deed.NotFound {
			err = fmt.Errorf("%s: %s.topic: the topic %q is not declared, and this installation takes declared topics only; declare it under topics", r.file.File, path, topics[path])
			errs = append(errs, &exitError{exitUsage, err})
		} else if err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// errNoLedger says that this process cannot record what is said of deliveries, or not yet.
var errNoLedger = errors.New("deliveries are not served here, or not yet")

// record keeps what a platform says of messages that a provider has sent.
func (r *receiving) record(ctx context.Context, provider string, events []delivery.StatusEvent) error {
	h := r.events.Load()
	if h == nil {
		return errNoLedger
	}
	return h.Record(ctx, provider, events...)
}

// newSource makes a source of the file. It connects to nothing.
func newSource(c config.Source) (s inbound.SourceOptions, err error) {
	secrets := []string{c.Secret.Reveal()}
	if previous := c.PreviousSecret.Reveal(); previous != "" {
		secrets = append(secrets, previous)
	}
	s = inbound.SourceOptions{
		Tenant: c.Tenant, At: inbound.AnswerAt(c.Answer), Unknown: inbound.Unknown(c.Unknown), Concurrency: c.Concurrency, Timeout: c.Timeout,
		Reply: inbound.ReplyBy{Provider: c.Reply.Provider, Channel: delivery.Channel(c.Reply.Channel), To: c.Reply.To},
	}
	channel := delivery.Chat
	switch c.Type {
	case "smtp": // its messages come by a listener of its own
		channel, s.PerHour = delivery.Email, mailPerHour
	case "telegram":
		s.Source, err = inbound.Telegram(inbound.TelegramOptions{Secrets: secrets})
	case "slack":
		s.Source, err = inbound.Slack(inbound.SlackOptions{Secrets: secrets})
	case "whatsapp":
		s.Source, err = inbound.WhatsApp(inbound.WhatsAppOptions{AppSecrets: secrets, VerifyToken: c.VerifyToken.Reveal()})
	case "webhook":
		channel = delivery.Webhook
		s.Source, err = inbound.Webhook(inbound.WebhookOptions{
			Secrets: secrets, Scheme: c.Signature.Scheme, Header: c.Signature.Header, Encoding: c.Signature.Encoding, Prefix: c.Signature.Prefix,
			Timestamp: c.Signature.Timestamp, Signed: c.Signature.Signed, Unsigned: c.Signature.Unsigned,
			ID: c.Fields.ID, Sender: c.Fields.Sender, ReplyTo: c.Fields.ReplyTo, Text: c.Fields.Text, Kind: c.Fields.Kind,
		})
	default:
		err = fmt.Errorf("type %q is not known", c.Type)
	}
	if err != nil {
		return s, err
	}
	if s.Reply.Channel == "" && s.Reply.Provider != "" {
		s.Reply.Channel = channel
	}
	if s.At == "" && (c.Type == "slack" || c.Type == "whatsapp") { // which wait for three seconds
		s.At = inbound.AfterAccepted
	}
	s.Executor, err = executor(c.Executor)
	return s, err
}

// mailPerHour is how many answers by mail somebody gets in an hour.
const mailPerHour = 10

// mailServer is a source of mail, and where it listens.
type mailServer struct {
	source   config.Source
	listener net.Listener
}

// listenForMail takes the addresses of the sources of mail, before anything is done.
func (r *receiving) listenForMail(ctx context.Context, file *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(file.Sources)) {
		s := file.Sources[name]
		if s.Type != "smtp" {
			continue
		}
		l, err := server.Listen(ctx, s.Mail.Listen)
		if err != nil {
			return fmt.Errorf("source %s: %w; give another listen", name, err)
		}
		r.mails = append(r.mails, mailServer{s, l})
	}
	return nil
}

// serveMail receives a source's mail until ctx ends.
func (r *receiving) serveMail(ctx context.Context, receiver *inbound.Receiver, m mailServer) error {
	c := m.source.Mail
	opts := smtp.Options{Source: m.source.Name, Addresses: c.Addresses, Trusted: c.Trusted, Names: c.Names, Hello: c.Hello, Bounces: returned{r}, Logger: r.opts.Logger}
	if c.TLS != nil {
		var err error
		if opts.TLS, err = c.TLS.Client(); err != nil { // its certificate serves, too
			return err
		}
	}
	s, err := smtp.New(receiver, opts)
	if err != nil {
		return err
	}
	r.opts.Logger.Info("listening for mail", "source", m.source.Name, "address", m.listener.Addr().String())
	return s.Serve(ctx, m.listener)
}

// returnsOf says which addresses are of mail that comes back to providers of the file; nil:
// they are not served here.
func returnsOf(file *config.Config, serves bool) func(to string) bool {
	if !serves {
		return nil
	}
	list, err := providers(file)
	if err != nil {
		return nil // which the dispatcher has said
	}
	readers := slices.Collect(maps.Values(mailReaders(file, list)))
	return func(to string) bool {
		return slices.ContainsFunc(readers, func(r delivery.MailReader) bool { return r.TakesMail(to) })
	}
}

// returned takes mail that comes back.
type returned struct{ of *receiving }

// Takes implements [smtp.Bounces].
func (r returned) Takes(to string) bool { return r.of.returns != nil && r.of.returns(to) }

// Take implements [smtp.Bounces].
func (r returned) Take(ctx context.Context, to string, raw []byte) (delivery.Recorded, error) {
	b := r.of.bounces.Load()
	if b == nil {
		return delivery.Recorded{}, errNoLedger
	}
	return b.Take(ctx, to, raw)
}

// devSource is the source that deed dev has itself.
const devSource = "dev"

// devSourceConfig is how it is written to. Its secret is no secret: it is reached from this
// machine alone.
var devSourceConfig = config.Source{
	Name: devSource, Type: "webhook", Secret: config.Known("the source of deed dev"), Answer: "executed",
	Fields: config.Fields{Sender: "$.from", Text: "$.text"}, Executor: config.Executor{Topic: "dev"},
}

// devWhatsAppSource is that of the number by which the provider whatsapp of deed dev writes.
var devWhatsAppSource = config.Source{
	Name: "whatsapp", Type: "whatsapp", Secret: config.Known(devAppSecret), VerifyToken: config.Known(devToken), Executor: config.Executor{Topic: "dev"},
	Reply: config.ReplyBy{Provider: "whatsapp", Channel: string(delivery.Chat)},
}

// devReceiving has the sources of the file, one more, which answers by mail to the
// mailbox of deed dev, and WhatsApp's, to which its fake says what becomes of messages.
func (a *app) devReceiving(ctx context.Context, file *config.Config, public net.Listener, log *slog.Logger) (*receiving, error) {
	r, err := a.receivingOf(file, true, log)
	if err != nil {
		return nil, err
	}
	if err := r.listenForMail(ctx, file); err != nil {
		return nil, err
	}
	s, err := newSource(devSourceConfig)
	if err != nil {
		return nil, err
	}
	s.Executor = func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		mail := delivery.EmailPayload{Subject: "You wrote to deed dev", Text: "You wrote: " + m.Text}
		if err := mail.Check(); err != nil {
			return inbound.Deny("no_mail"), nil
		}
		return inbound.Result{Replies: []inbound.Reply{{Payload: mail.JSON(), Provider: "smtp", Channel: delivery.Email, To: "you@example.com"}}}, nil
	}
	r.opts.Sources[devSource] = s
	if _, taken := file.Sources[devWhatsAppSource.Name]; !taken {
		if s, err = newSource(devWhatsAppSource); err != nil {
			return nil, err
		}
		s.Executor = func(_ context.Context, m inbound.Message) (inbound.Result, error) {
			said, err := json.Marshal(whatsapp.Payload{Text: "You wrote: " + m.Text})
			return inbound.Result{Replies: []inbound.Reply{{Payload: said}}}, err
		}
		s.Statuses = func(ctx context.Context, events []delivery.StatusEvent) error {
			return r.record(ctx, s.Reply.Provider, events)
		}
		r.opts.Sources[devWhatsAppSource.Name] = s
	}
	r.listener = public
	return r, nil
}

// devPublic listens where others write to deed dev, and its fakes say what became of what they
// took. What the file has for others to reach is no address of this one, whose own source
// everybody could write to.
func devPublic(ctx context.Context, file *config.Config) (net.Listener, error) {
	if address := cmp.Or(os.Getenv("DEED_PUBLIC"), file.Public.Listen); isOwn(address) {
		return server.Listen(ctx, address)
	}
	l, err := server.Listen(ctx, defaultDevPublic)
	if errors.Is(err, syscall.EADDRINUSE) {
		l, err = server.Listen(ctx, "127.0.0.1:0")
	}
	return l, err
}

const defaultDevPublic = "127.0.0.1:8427"

// isOwn reports whether an address is reached from this machine alone.
func isOwn(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func executor(c config.Executor) (inbound.Executor, error) {
	if c.Topic != "" {
		return inbound.ToTopic(c.Topic, c.Body)
	}
	return inbound.Call(inbound.CallOptions{URL: c.Webhook, Secret: c.Secret.Reveal(), PreviousSecret: c.Previous.Reveal(), AllowHosts: c.AllowHosts})
}

// open makes the receiver on connections of its own. They record what is told of the providers that
// others serve, too.
func (r *receiving) open(ctx context.Context, url string) (*inbound.Receiver, func(), error) {
	cfg, err := parseDatabase(url, r.opts.Worker)
	if err != nil {
		return nil, nil, err
	}
	// Each source has one that settles and claims, and one that renews; the rest is for
	// requests.
	cfg.MaxConns = int32(8 + 2*len(r.opts.Sources))
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	receiver, err := inbound.New(ctx, pool, r.opts)
	if err == nil && len(r.told) > 0 {
		var l *delivery.Ledger // which calls nobody
		if l, err = delivery.New(ctx, pool, delivery.Options{Providers: r.told, Worker: r.opts.Worker, Logger: r.opts.Logger}); err == nil {
			r.events.Store(l.EventsHandler(nil))
		}
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	r.pool = pool
	return receiver, pool.Close, nil
}

// run takes messages and runs their executors until ctx ends.
func (r *receiving) run(ctx context.Context, receiver *inbound.Receiver) error {
	run := receiver.Run
	for _, m := range r.mails {
		rest := run
		run = func(ctx context.Context) error {
			return both(ctx, rest, func(ctx context.Context) error { return r.serveMail(ctx, receiver, m) })
		}
	}
	if r.listener == nil {
		return run(ctx)
	}
	r.opts.Logger.Info("listening for platforms", "address", r.listener.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("/in/", receiver.Handler())
	if events := r.events.Load(); events != nil {
		mux.Handle("/events/", events)
	}
	if r.links != nil {
		acts := newLinked(r.pool, r.opts.Logger)
		mux.Handle("/confirm/{token}", &confirmPage{r.links, acts})
		mux.Handle("/u/{token}", &leavePage{r.links, acts})
	}
	return both(ctx, run, func(ctx context.Context) error { return server.Serve(ctx, r.listener, mux) })
}
