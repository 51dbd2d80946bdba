package rulestest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/weirgo/weir/rules"
)

// The messages of Envoy's protocol, in JSON. They are read without the protocol's own types, which
// would multiply the time that it takes to compile the tool.
type (
	requestJSON struct {
		Domain      string
		Descriptors []*descriptorJSON
		HitsAddend  *number[uint32]
	}

	descriptorJSON struct {
		Entries        []*struct{ Key, Value string }
		Limit          *overrideJSON
		HitsAddend     *number[uint64]
		IsNegativeHits bool
	}

	overrideJSON struct {
		RequestsPerUnit number[uint32]
		Unit            unitJSON
		UnitMultiplier  *number[uint32]
	}
)

// number is a number, or a string with one.
type number[N uint32 | uint64] struct{ n N }

// UnmarshalJSON implements json.Unmarshaler.
func (n *number[N]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil // as if it were not given
	}
	digits := strings.Trim(string(text), `"`)
	v, err := strconv.ParseUint(digits, 10, 64)
	if f, notFloat := strconv.ParseFloat(digits, 64); err != nil && notFloat == nil &&
		f >= 0 && f < 1<<53 && f == math.Trunc(f) {
		v, err = uint64(f), nil
	}
	n.n = N(v)
	if err != nil || uint64(n.n) != v {
		return fmt.Errorf("%s is no whole number from 0 to %d", text, ^N(0))
	}
	return nil
}

// unitJSON is the name of a unit, or its number.
type unitJSON rules.Unit

// UnmarshalJSON implements json.Unmarshaler.
func (u *unitJSON) UnmarshalJSON(text []byte) error {
	var n int32
	if json.Unmarshal(text, &n) == nil {
		*u = unitJSON(n)
		return nil
	}
	name := strings.Trim(string(text), `"`)
	for unit := rules.UnknownUnit; unit <= rules.Year; unit++ { // of a week the protocol has no name
		if name == strings.ToUpper(unit.String()) {
			*u = unitJSON(unit)
			return nil
		}
	}
	return fmt.Errorf("%s is no unit such as \"MINUTE\"", text)
}

// ParseRequest parses a request in the JSON form of Envoy's protocol, as weir serve does at /json.
func ParseRequest(data []byte) (*rules.Request, error) {
	var in requestJSON
	if err := decode(data, &in); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	req := &rules.Request{Domain: in.Domain}
	if in.HitsAddend != nil {
		req.Hits = uint64(in.HitsAddend.n)
	}
	for _, d := range in.Descriptors {
		if d == nil {
			return nil, errors.New("request: a descriptor is null")
		}
		to := rules.Descriptor{GiveBack: d.IsNegativeHits, Override: d.Limit.override()}
		if d.HitsAddend != nil {
			to.Hits, to.HasHits = d.HitsAddend.n, true
		}
		for _, e := range d.Entries {
			if e == nil {
				return nil, errors.New("request: an entry is null")
			}
			to.Entries = append(to.Entries, rules.Entry{Key: e.Key, Value: e.Value})
		}
		req.Descriptors = append(req.Descriptors, to)
	}
	return req, nil
}

func (l *overrideJSON) override() *rules.Override {
	if l == nil {
		return nil
	}
	o := &rules.Override{Requests: l.RequestsPerUnit.n, Unit: rules.Unit(l.Unit), Multiplier: 1}
	if l.UnitMultiplier != nil {
		o.Multiplier = l.UnitMultiplier.n
		if o.Multiplier == 0 {
			o.Unit = rules.UnknownUnit // a period of 0 is invalid
		}
	}
	return o
}

// decode decodes one JSON value, whose fields are named as in a message's JSON form or in its
// definition.
func decode(data []byte, to any) error {
	var all any
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	if err := values.Decode(&all); err != nil {
		return err
	}
	if _, err := values.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	text, err := json.Marshal(joined(all))
	if err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return strict.Decode(to)
}

// joined returns v with names such as hits_addend written hitsaddend, which decode as hitsAddend.
func joined(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = joined(v[i])
		}
	case map[string]any:
		named := make(map[string]any, len(v))
		for name, value := range v {
			named[strings.ReplaceAll(name, "_", "")] = joined(value)
		}
		return named
	}
	return v
}

// ParseDescriptors parses descriptors that are written KEY=VALUE,KEY=VALUE.
func ParseDescriptors(texts []string) ([]rules.Descriptor, error) {
	var all []rules.Descriptor
	for _, text := range texts {
		entries, err := rules.ParseEntries(text)
		if err != nil {
			return nil, err
		}
		all = append(all, rules.Descriptor{Entries: entries})
	}
	return all, nil
}
