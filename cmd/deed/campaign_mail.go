package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
)

// mailedReport is how a report goes to somebody.
type mailedReport struct {
	to, provider, from, request string
	wait                        time.Duration
}

func (m *mailedReport) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.to, "send-to", "", "send it to this address, as an e-mail")
	f.StringVar(&m.provider, "provider", "", "by this provider of e-mail (default: the run's)")
	f.StringVar(&m.from, "from", "", "from this sender (default: the run's, or the provider's)")
	f.StringVar(&m.request, "request-id", "", "the request's own id: the same one is sent once (default: made of the run, its status and the address)")
	durationVar(cmd, &m.wait, "wait", 0, "wait so long for a relay to have sent it")
}

func (m *mailedReport) check(cmd *cobra.Command) error {
	if m.to != "" {
		return nil
	}
	for _, name := range []string{"provider", "from", "request-id", "wait"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s goes with --send-to", name)
		}
	}
	return nil
}

// send reserves the e-mail, for the run's tenant.
func (m *mailedReport) send(cmd *cobra.Command, a *app, r campaign.Report) error {
	name, from := cmp.Or(m.provider, r.Provider), m.from
	if r.Channel != campaign.Email && m.provider == "" {
		return usagef("the run goes over %s: say which provider sends e-mails (--provider)", r.Channel)
	}
	if name == r.Provider && r.Channel == campaign.Email {
		from = cmp.Or(from, r.From)
	}
	e, err := r.Email(from, time.Now())
	if err != nil {
		return err
	}
	request := delivery.NewKey("deed campaign report", r.ID, m.to, "status", string(r.Status))
	if m.request != "" {
		request = delivery.NewKey("deed campaign report", r.ID, m.to, "request", m.request)
	}
	return a.sendOne(cmd, &r.Tenant, delivery.Delivery{Channel: delivery.Email, Provider: name, Recipient: m.to, Payload: e.JSON(), Key: request}, m.wait)
}
