package pgembed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"
)

// Options says where and how a server runs. The zero value makes a cluster in
// a temporary folder that [Cluster.Stop] removes.
type Options struct {
	// Dir is the cluster's folder: the data, the log and the socket are in it,
	// and nothing else may be. It is made when absent, and closed to others.
	// Default: a new folder among the temporary ones, removed by Stop.
	Dir string

	// TempDir is where that new folder is made, if the server's user can reach
	// it. Default: the system's folder for temporary files.
	TempDir string

	// Binaries are the programs to use. Default: those that [Find] finds, or
	// those of the version that made the data.
	Binaries Binaries

	// Settings are parameters of postgresql.conf, by name. Where the server
	// listens and keeps its files is not among them.
	Settings map[string]string

	// Unsafe turns fsync and full_page_writes off: a crash of the machine may
	// destroy the cluster, a crash of the server does not.
	Unsafe bool

	// TCP listens on 127.0.0.1, with a password, instead of on a Unix socket.
	// A folder whose path is too long for a socket implies it.
	TCP bool

	// Port is the loopback port, or the number in the socket's name. Default:
	// a free port, and 5432 for a socket.
	Port int

	// StopTimeout is how long a shutdown may take before sessions are cut off
	// without a checkpoint. Default 30s.
	StopTimeout time.Duration

	// Logger receives starts, stops and repairs. Default: discard.
	Logger *slog.Logger
}

// owned are the settings that Start itself makes.
var owned = []string{
	"config_file", "data_directory", "external_pid_file", "hba_file", "ident_file",
	"listen_addresses", "logging_collector", "log_destination", "port", "unix_socket_directories",
}

func (o Options) withDefaults() (Options, error) {
	o.StopTimeout = cmp.Or(o.StopTimeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	var errs []error
	for _, name := range owned {
		if _, set := o.Settings[name]; set {
			errs = append(errs, fmt.Errorf("setting %s is not for the caller to make", name))
		}
	}
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d is not one", o.Port))
	}
	if o.StopTimeout < 0 {
		errs = append(errs, fmt.Errorf("stop timeout %s is negative", o.StopTimeout))
	}
	if o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			errs = append(errs, err)
		}
		o.Dir = dir
	}
	if err := errors.Join(errs...); err != nil {
		return o, fmt.Errorf("pgembed: %w", err)
	}
	return o, nil
}
