package main

import (
	"bufio"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
)

// proofFlags are those of proofs that leave the database.
type proofFlags struct {
	signed, check string
	keys          []string
}

func (p *proofFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.signed, "signed", "", "write the proof to this new file, signed with audit.key of deed.yaml")
	f.StringVar(&p.check, "check", "", "hold such a file against --key, without a database")
	f.StringArrayVar(&p.keys, "key", nil, "with --check: a file with the public key; again for one of before")
	cmd.MarkFlagsMutuallyExclusive("signed", "check")
}

// signer is the key of --signed; nil: nothing is signed.
func (p *proofFlags) signer(a *app) (ed25519.PrivateKey, error) {
	if p.signed == "" {
		return nil, nil
	}
	file, err := a.config()
	if err != nil {
		return nil, err
	}
	return auditKey(file)
}

// sign writes the proof of a run. A file that is there is left as it is, and of what failed none is.
func (p *proofFlags) sign(cmd *cobra.Command, pool *pgxpool.Pool, run string, key ed25519.PrivateKey) error {
	f, err := os.OpenFile(p.signed, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	w := bufio.NewWriter(f)
	_, err = campaign.Sign(cmd.Context(), pool, run, key, w)
	if err = errors.Join(err, w.Flush(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(p.signed))
	}
	return nil
}

// run holds a file against the public keys.
func (p *proofFlags) run(cmd *cobra.Command, asJSON bool) error {
	keys, err := publicKeys(p.keys)
	if err != nil {
		return err
	}
	in, stop, err := openFile(cmd, p.check)
	if err != nil {
		return err
	}
	defer stop()
	s, err := campaign.CheckSigned(in, keys...)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), s)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, signed %s: each of %s has one delivery, which has ended: %v\n", s.Run.ID, s.Run.Status, s.At.Format("2006-01-02 15:04:05Z07:00"),
		many(s.Run.Members, "member", "members"), s.Counts)
	return err
}
