package seal

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
)

// NewKey makes a private key, as PEM of PKCS #8; `openssl genpkey -algorithm
// ed25519` makes such, too.
func NewKey() (private []byte, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// errKey says nothing of what stands where a key should.
var errKey = errors.New("it is no Ed25519 key in PEM, such as openssl genpkey -algorithm ed25519 makes")

// ParsePrivateKey reads a private key: PEM of PKCS #8, or the one line in it, for
// where a line is all that there is place for. No error has anything of it.
func ParsePrivateKey(text string) (ed25519.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der(text, "PRIVATE KEY"))
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errKey
	}
	return private, nil
}

// ParsePublicKey reads a public key, PEM such as [PublicKey] and `openssl pkey
// -pubout` write.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der(text, "PUBLIC KEY"))
	public, ok := key.(ed25519.PublicKey)
	if err != nil || !ok {
		return nil, errKey
	}
	return public, nil
}

// der is what stands in a PEM block of that kind, or in a text that is its one line.
func der(text, kind string) []byte {
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if block.Type != kind {
			return nil
		}
		return block.Bytes
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil
	}
	return raw
}

// PublicKey is the public half of a private key, as PEM.
func PublicKey(private ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// KeyName tells keys apart: the beginning of a public key's SHA-256, in hex.
func KeyName(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}
