package main

import (
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/run"
)

// runSecrets are the sources of secrets that deed.yaml names.
func runSecrets(list []config.RunSecret) (sources run.SecretSources) {
	for _, s := range list {
		sources = append(sources, run.SecretSource{Ref: s.Ref, Tenant: s.Tenant, Environment: s.Environment, From: s.From})
	}
	return sources
}

// stateStore is what deed.yaml says of writes of events (R14).
func stateStore(file config.StateStore) local.StateStore {
	types := func(names []string) []run.Type {
		if names == nil {
			return nil
		}
		list := []run.Type{}
		for _, name := range names {
			list = append(list, run.Type(name))
		}
		return list
	}
	return local.StateStore{
		WriteLatencyBudget: file.WriteLatencyBudget, FailOpenForEventClass: types(file.FailOpenForEventClass), NeverFailOpen: types(file.NeverFailOpen),
	}
}

// steps is what metrics ask of the engine; nil without one.
func (r *relay) steps() func() (steps, journal map[string]int64) {
	if r.engine == nil {
		return nil
	}
	return func() (steps, journal map[string]int64) {
		s := r.engine.Stats()
		return map[string]int64{"completed": s.Completed, "failed": s.Failed, "skipped": s.Skipped, "released": s.Released, "lost": s.Lost, "expired": s.Expired},
			map[string]int64{"written": s.Journaled, "told": s.Replayed, "error": s.JournalErrors}
	}
}
