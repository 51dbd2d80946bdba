package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// ParseRequest parses the JSON form of the protocol's RateLimitRequest. As in all proto3 JSON,
// names may be written like_this or likeThis, numbers may be strings, units are names or numbers,
// and null means an unset field. Unknown and repeated fields are errors.
func ParseRequest(data []byte) (*Request, error) {
	var r Request
	err := object(data, func(name string, v json.RawMessage) (err error) {
		switch name {
		case "domain":
			r.Domain, err = text(v)
		case "descriptors":
			err = list(v, func(v json.RawMessage) error {
				d, err := parseDescriptor(v)
				r.Descriptors = append(r.Descriptors, d)
				return err
			})
		case "hits_addend":
			r.Hits, err = number(v, math.MaxUint32)
		default:
			err = errUnknown
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rules: request: %w", err)
	}
	return &r, nil
}

func parseDescriptor(data []byte) (d Descriptor, err error) {
	err = object(data, func(name string, v json.RawMessage) (err error) {
		switch name {
		case "entries":
			err = list(v, func(v json.RawMessage) error {
				e, err := parseEntry(v)
				d.Entries = append(d.Entries, e)
				return err
			})
		case "limit":
			d.Override, err = parseOverride(v)
		case "hits_addend":
			d.Hits, err = number(v, math.MaxUint64)
			d.HasHits = true
		case "is_negative_hits":
			d.GiveBack, err = truth(v)
		default:
			err = errUnknown
		}
		return err
	})
	return d, err
}

func parseEntry(data []byte) (e Entry, err error) {
	err = object(data, func(name string, v json.RawMessage) (err error) {
		switch name {
		case "key":
			e.Key, err = text(v)
		case "value":
			e.Value, err = text(v)
		default:
			err = errUnknown
		}
		return err
	})
	return e, err
}

func parseOverride(data []byte) (*Override, error) {
	o := &Override{Multiplier: 1}
	err := object(data, func(name string, v json.RawMessage) error {
		switch name {
		case "requests_per_unit":
			n, err := number(v, math.MaxUint32)
			o.Requests = uint32(n)
			return err
		case "unit_multiplier":
			n, err := number(v, math.MaxUint32)
			if err == nil && n == 0 {
				err = errors.New("must be at least 1")
			}
			o.Multiplier = uint32(n)
			return err
		case "unit":
			var err error
			o.Unit, err = parseUnit(v)
			return err
		}
		return errUnknown
	})
	return o, err
}

func parseUnit(v json.RawMessage) (Unit, error) {
	if v[0] != '"' {
		n, err := number(v, math.MaxInt32)
		return Unit(n), err
	}
	name, err := text(v)
	if err != nil {
		return UnknownUnit, err
	}
	u, ok := ParseUnit(name)
	if !ok && name != "UNKNOWN" || name != strings.ToUpper(name) {
		return UnknownUnit, fmt.Errorf("unknown unit %q", name)
	}
	return u, nil
}

var errUnknown = errors.New("unknown field")

// object calls f for each non-null field of a JSON object, with its name in snake case.
func object(data []byte, f func(name string, v json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("want a JSON object")
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		given, _ := t.(string) // only a name can come here
		name := snake(given)
		if seen[name] {
			return fmt.Errorf("%s: repeated", given)
		}
		seen[name] = true
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("%s: %w", given, err)
		}
		if string(v) == "null" {
			continue
		}
		if err := f(name, v); err != nil {
			return fmt.Errorf("%s: %w", given, err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the object")
	}
	return nil
}

// snake converts likeThis to like_this.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func list(data []byte, f func(v json.RawMessage) error) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return errors.New("want a list")
	}
	for i, v := range elements {
		if err := f(v); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func text(v json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(v, &s); err != nil || s == nil {
		return "", errors.New("want a string")
	}
	return *s, nil
}

func truth(v json.RawMessage) (bool, error) {
	b, err := strconv.ParseBool(string(v))
	if err != nil || v[0] != 't' && v[0] != 'f' {
		return false, errors.New("want true or false")
	}
	return b, nil
}

// number parses a number, written as a number or as a string; it may have an exponent.
func number(v json.RawMessage, most uint64) (uint64, error) {
	s := string(v)
	if s[0] == '"' {
		var err error
		if s, err = text(v); err != nil {
			return 0, err
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		var f float64
		if f, err = strconv.ParseFloat(s, 64); err == nil && f >= 0 && f <= 1<<53 && f == math.Trunc(f) {
			n = uint64(f)
		} else {
			err = strconv.ErrSyntax
		}
	}
	if err != nil || n > most {
		return 0, fmt.Errorf("%s is not a whole number from 0 to %d", s, most)
	}
	return n, nil
}
