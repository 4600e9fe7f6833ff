package liquid

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

var (
	errNoNumber = errors.New("a number is needed: give what may lack one a default, as in | default: 0")
	errTooLarge = errors.New("the result is too large")
	errByZero   = errors.New("division by zero")
)

// numeric is a number: i if it is whole, f always.
type numeric struct {
	whole bool
	i     int
	f     float64
}

// toNumber reads numbers, also those that are written as texts, as all of a CSV are.
func toNumber(v any) (numeric, error) {
	switch v := v.(type) {
	case int:
		return numeric{true, v, float64(v)}, nil
	case float64:
		return numeric{f: v}, nil
	case string:
		text := strings.TrimSpace(v)
		if i, err := strconv.Atoi(text); err == nil {
			return numeric{true, i, float64(i)}, nil
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) && !strings.ContainsAny(text, "xX_") {
			return numeric{f: f}, nil
		}
	}
	return numeric{}, errNoNumber
}

func toFloat(v any) float64 {
	n, err := toNumber(v)
	if err != nil {
		return 0
	}
	return n.f
}

// finite is a result, if it is one.
func finite(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errTooLarge
	}
	return f, nil
}

// wholeOf is a result as a whole number.
func wholeOf(f float64) (any, error) {
	if math.Abs(f) >= 1<<53 {
		return nil, errTooLarge
	}
	return int(f), nil
}

func two(v any, args []any) (a, b numeric, err error) {
	if a, err = toNumber(v); err != nil {
		return a, b, err
	}
	b, err = toNumber(args[0])
	return a, b, err
}

func plus(_ *state, v any, args []any) (any, error) {
	a, b, err := two(v, args)
	if err != nil {
		return nil, err
	}
	return sum(a, b)
}

func minus(_ *state, v any, args []any) (any, error) {
	a, b, err := two(v, args)
	if err != nil {
		return nil, err
	}
	if b.whole && b.i == math.MinInt {
		return nil, errTooLarge
	}
	b.i, b.f = -b.i, -b.f
	return sum(a, b)
}

func sum(a, b numeric) (any, error) {
	if !a.whole || !b.whole {
		return finite(a.f + b.f)
	}
	if c := a.i + b.i; (c > a.i) == (b.i > 0) {
		return c, nil
	}
	return nil, errTooLarge
}

func times(_ *state, v any, args []any) (any, error) {
	a, b, err := two(v, args)
	if err != nil {
		return nil, err
	}
	if !a.whole || !b.whole {
		return finite(a.f * b.f)
	}
	if a.i == math.MinInt || b.i == math.MinInt {
		return nil, errTooLarge
	}
	high, low := bits.Mul64(uint64(max(a.i, -a.i)), uint64(max(b.i, -b.i)))
	if high != 0 || low > math.MaxInt {
		return nil, errTooLarge
	}
	return a.i * b.i, nil
}

// dividedBy is a whole number of two whole ones, rounded down.
func dividedBy(_ *state, v any, args []any) (any, error) {
	a, b, err := two(v, args)
	switch {
	case err != nil:
		return nil, err
	case b.f == 0:
		return nil, errByZero
	case !a.whole || !b.whole:
		return finite(a.f / b.f)
	case a.i == math.MinInt && b.i == -1:
		return nil, errTooLarge
	}
	q := a.i / b.i
	if a.i%b.i != 0 && (a.i < 0) != (b.i < 0) {
		q--
	}
	return q, nil
}

// modulo has the sign of the divisor.
func modulo(_ *state, v any, args []any) (any, error) {
	a, b, err := two(v, args)
	switch {
	case err != nil:
		return nil, err
	case b.f == 0:
		return nil, errByZero
	case !a.whole || !b.whole:
		m := math.Mod(a.f, b.f)
		if m != 0 && (m < 0) != (b.f < 0) {
			m += b.f
		}
		return finite(m)
	case b.i == -1:
		return 0, nil
	}
	m := a.i % b.i
	if m != 0 && (m < 0) != (b.i < 0) {
		m += b.i
	}
	return m, nil
}

func abs(_ *state, v any, _ []any) (any, error) {
	n, err := toNumber(v)
	switch {
	case err != nil:
		return nil, err
	case !n.whole:
		return math.Abs(n.f), nil
	case n.i == math.MinInt:
		return nil, errTooLarge
	}
	return max(n.i, -n.i), nil
}

func ceil(_ *state, v any, _ []any) (any, error)  { return rounded(v, math.Ceil) }
func floor(_ *state, v any, _ []any) (any, error) { return rounded(v, math.Floor) }

func rounded(v any, fn func(float64) float64) (any, error) {
	n, err := toNumber(v)
	if err != nil || n.whole {
		return n.i, err
	}
	return wholeOf(fn(n.f))
}

// round is to so many decimals, halves away from zero.
func round(_ *state, v any, args []any) (any, error) {
	if len(args) == 0 {
		return rounded(v, math.Round)
	}
	places, err := decimals(args[0])
	if err != nil {
		return nil, err
	}
	n, err := toNumber(v)
	if err != nil {
		return nil, err
	}
	if n.whole {
		return n.i, nil
	}
	shift := math.Pow10(places)
	if math.IsInf(n.f*shift, 0) {
		return n.f, nil
	}
	return finite(math.Round(n.f*shift) / shift)
}

func decimals(v any) (int, error) {
	places, err := toCount(v)
	if err != nil {
		return 0, err
	}
	if places < 0 || places > 15 {
		return 0, fmt.Errorf("decimals are from 0 to 15")
	}
	return places, nil
}

// number writes a number with so many decimals, the mark before them, and one between
// thousands: 1234.5 as number: 2, ",", "." is 1.234,50.
func number(s *state, v any, args []any) (any, error) {
	places, marks := 0, []string{".", ""}
	var err error
	for i, arg := range args {
		if i == 0 {
			places, err = decimals(arg)
		} else if marks[i-1], err = toText(arg); err == nil && len(marks[i-1]) > 8 {
			err = fmt.Errorf("a mark has up to 8 bytes")
		}
		if err != nil {
			return nil, err
		}
	}
	n, err := toNumber(v)
	if err != nil {
		return nil, err
	}
	text := strconv.FormatFloat(math.Abs(n.f), 'f', places, 64)
	if n.whole {
		text = strings.TrimPrefix(strconv.Itoa(n.i), "-")
		if places > 0 {
			text += "." + strings.Repeat("0", places)
		}
	}
	digits, fraction, _ := strings.Cut(text, ".")
	var b strings.Builder
	if n.f < 0 && strings.Trim(text, "0.") != "" {
		b.WriteByte('-')
	}
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteString(marks[1])
		}
		b.WriteRune(digit)
	}
	if fraction != "" {
		b.WriteString(marks[0] + fraction)
	}
	return s.text(b.String())
}
