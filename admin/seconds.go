package admin

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/sqlvalue"
)

// Seconds is a [time.Duration] that is a number of seconds in JSON.
type Seconds time.Duration

// String is that of a [time.Duration].
func (s Seconds) String() string { return time.Duration(s).String() }

// MarshalJSON writes microseconds as decimals.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(s).Microseconds()) / 1e6)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var v float64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*s = Seconds(sqlvalue.Seconds(v))
	return nil
}

// ScanFloat64 reads what statements return: seconds, as deed's functions do.
func (s *Seconds) ScanFloat64(v pgtype.Float8) error {
	if !v.Valid {
		return errors.New("cannot read null as seconds")
	}
	*s = Seconds(sqlvalue.Seconds(v.Float64))
	return nil
}
