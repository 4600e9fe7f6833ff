package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/delivery"
)

// remade is the request of a campaign's delivery, made again, or why it was not.
type remade struct {
	delivery.Rendering
	Error string `json:"error,omitempty"`
}

func (r *remade) says() string {
	switch {
	case r.Error != "":
		return "no: " + r.Error
	case r.Same:
		return "yes, and it is what was sent, byte for byte"
	}
	return "yes, and it is NOT what was sent: its sha256 is " + r.SHA256 + "; the provider, public.url, public.link_secret or deed itself have changed since"
}

// remake makes the request of a delivery again, with the provider that deed.yaml has.
func (a *app) remake(ctx context.Context, pool *pgxpool.Pool, e delivery.Entry) *remade {
	r := &remade{}
	var err error
	if r.Rendering, err = a.render(ctx, pool, e); err != nil {
		r.Error = err.Error()
	}
	return r
}

func (a *app) render(ctx context.Context, pool *pgxpool.Pool, e delivery.Entry) (r delivery.Rendering, err error) {
	file, err := a.config()
	if err != nil {
		return r, err
	}
	opts := delivery.Options{Composer: campaign.NewComposer(pool, liquid.Engine)}
	if opts.Links, err = linksOf(file); err != nil {
		return r, err
	}
	var release func()
	if opts.Providers, release, err = providerOf(file, e.Provider); err != nil {
		return r, err
	}
	defer release()
	l, err := delivery.New(ctx, pool, opts)
	if err != nil {
		return r, err
	}
	return l.Render(ctx, e.ID)
}
