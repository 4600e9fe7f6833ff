// Package signing reads the secrets that webhooks are signed with.
package signing

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Prefix begins a secret that is written as Standard Webhooks has it.
const Prefix = "whsec_"

// How many bytes a key must have. Standard Webhooks sets the bounds of those
// after Prefix.
const (
	leastText         = 16
	leastKey, mostKey = 24, 64
)

// Key returns a secret's key: the bytes whose base64 follows Prefix, or those of
// any other text.
func Key(secret string) ([]byte, error) {
	encoded, standard := strings.CutPrefix(secret, Prefix)
	if !standard {
		if secret == "" {
			return nil, errors.New("is empty")
		}
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, fmt.Errorf("begins with %q but is not base64 after it", Prefix)
	}
	return key, nil
}

// Check says what keeps a secret from being signed with.
func Check(secret string) error {
	key, err := Key(secret)
	switch {
	case secret == "":
		return err
	case !strings.HasPrefix(secret, Prefix):
		if len(key) < leastText {
			return fmt.Errorf("has %d bytes; it must have at least %d", len(key), leastText)
		}
	case err != nil || len(key) < leastKey || len(key) > mostKey:
		return fmt.Errorf("begins with %q but the base64 of %d to %d bytes does not follow", Prefix, leastKey, mostKey)
	}
	return nil
}
