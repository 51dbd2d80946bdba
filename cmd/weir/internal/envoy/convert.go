package envoy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/rules"
)

// read fills x.req and reuses its memory.
func (x *exchange) read(in *pb.RateLimitRequest) {
	x.req.Domain, x.req.Hits = in.GetDomain(), uint64(in.GetHitsAddend())
	list := in.GetDescriptors()
	if cap(x.req.Descriptors) < len(list) {
		x.req.Descriptors = make([]rules.Descriptor, len(list))
	}
	x.req.Descriptors = x.req.Descriptors[:len(list)]
	for i, d := range list {
		to := &x.req.Descriptors[i]
		entries := to.Entries[:0]
		for _, e := range d.GetEntries() {
			entries = append(entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		*to = rules.Descriptor{Entries: entries, GiveBack: d.GetIsNegativeHits(),
			Override: override(d.GetLimit())}
		if h := d.GetHitsAddend(); h != nil {
			to.Hits, to.HasHits = h.GetValue(), true
		}
	}
}

func override(l *common.RateLimitDescriptor_RateLimitOverride) *rules.Override {
	if l == nil {
		return nil
	}
	o := &rules.Override{Requests: l.GetRequestsPerUnit(), Unit: rules.Unit(l.GetUnit()),
		Multiplier: 1}
	if m := l.GetUnitMultiplier(); m != nil {
		o.Multiplier = m.GetValue()
		if o.Multiplier == 0 {
			o.Unit = rules.UnknownUnit // a period of 0 is invalid
		}
	}
	return o
}

// descriptorStatus contains its parts, so that one allocation holds all of them.
type descriptorStatus struct {
	status pb.RateLimitResponse_DescriptorStatus
	limit  pb.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// response converts x.resp to the protocol's response.
func (x *exchange) response() *pb.RateLimitResponse {
	statuses := make([]descriptorStatus, len(x.resp.Statuses))
	out := &pb.RateLimitResponse{
		OverallCode: code(x.resp.Denied),
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, len(statuses)),
	}
	for i := range statuses {
		statuses[i].fill(&x.resp.Statuses[i])
		out.Statuses[i] = &statuses[i].status
	}
	return out
}

func code(over bool) pb.RateLimitResponse_Code {
	if over {
		return pb.RateLimitResponse_OVER_LIMIT
	}
	return pb.RateLimitResponse_OK
}

func (d *descriptorStatus) fill(s *rules.Status) {
	d.status.Code = code(s.Reason == rules.Over)
	d.status.LimitRemaining = uint32(min(s.Remaining, math.MaxUint32))
	if s.Limit == nil {
		return
	}
	d.limit.RequestsPerUnit = s.Limit.Requests
	d.limit.Unit = pb.RateLimitResponse_RateLimit_Unit(s.Limit.Unit)
	d.limit.Name = s.Limit.Name // not the rule's path: Envoy sends it to clients, in X-RateLimit-Limit
	if s.Limit.Multiplier > 1 {
		d.limit.UnitMultiplier = wrapperspb.UInt32(s.Limit.Multiplier)
	}
	d.reset.Seconds = s.ResetSeconds()
	d.status.CurrentLimit, d.status.DurationUntilReset = &d.limit, &d.reset
}

// headers returns the header fields for the client. They describe the last descriptor that is over
// its limit and not in quota mode or, if there is none, the one with the least remaining.
func (n *HeaderNames) headers(resp *rules.Response) []*core.HeaderValue {
	var shown *rules.Status
	for i := range resp.Statuses {
		s := &resp.Statuses[i]
		if s.Limit == nil {
			continue
		}
		denies := s.Reason == rules.Over && (s.Rule == nil || !s.Rule.Quota)
		if shown == nil || denies || shown.Reason != rules.Over && s.Remaining < shown.Remaining {
			shown = s
		}
	}
	if shown == nil {
		return nil
	}
	field := func(key string, n uint64) *core.HeaderValue {
		return &core.HeaderValue{Key: key, Value: strconv.FormatUint(n, 10)}
	}
	list := []*core.HeaderValue{
		field(n.Limit, uint64(shown.Limit.Requests)),
		field(n.Remaining, shown.Remaining),
		field(n.Reset, uint64(shown.ResetSeconds())),
	}
	if !resp.Allowed() {
		longest := int64(0)
		for i := range resp.Statuses {
			if resp.Statuses[i].Reason == rules.Over {
				longest = max(longest, resp.Statuses[i].ResetSeconds())
			}
		}
		list = append(list, field("Retry-After", uint64(longest)))
	}
	return list
}

// metadata returns the request's descriptors and the metadata of the rules that passed. If several
// rules have the same key, the first wins; maps are merged. weir's own settings are left out. A
// descriptor has a limit only if the request overrides it, in the protocol's text form.
func metadata(in *pb.RateLimitRequest, resp *rules.Response) (*structpb.Struct, error) {
	merged := map[string]any{}
	var descriptors []any
	for i, d := range in.GetDescriptors() {
		s := &resp.Statuses[i]
		entries := []any{}
		for _, e := range d.GetEntries() {
			entries = append(entries, clean(e.GetKey()+"="+e.GetValue()))
		}
		one := map[string]any{"entries": entries}
		if l := d.GetLimit(); l != nil {
			one["limit"] = strings.Join(strings.Fields(l.String()), " ") // the number of spaces is random
		}
		if h := d.GetHitsAddend(); h != nil {
			one["hitsAddend"] = float64(h.GetValue())
		}
		descriptors = append(descriptors, one)
		if s.Rule != nil && s.Reason != rules.Over {
			merge(merged, s.Rule.Metadata())
		}
	}
	all := map[string]any{"domain": clean(in.GetDomain()), "descriptors": descriptors}
	if in.GetHitsAddend() > 0 {
		all["hitsAddend"] = float64(in.GetHitsAddend())
	}
	if len(merged) > 0 {
		all["metadata"] = merged
	}
	out, err := structpb.NewStruct(all)
	if err != nil {
		return nil, fmt.Errorf("dynamic metadata: %w", err)
	}
	return out, nil
}

func merge(dst, src map[string]any) {
	for k, v := range src {
		have, both := dst[k]
		from, isMap := v.(map[string]any)
		switch into, ok := have.(map[string]any); {
		case !both && isMap:
			fresh := map[string]any{} // the rule's own map must not change
			merge(fresh, from)
			dst[k] = fresh
		case !both:
			dst[k] = v
		case ok && isMap:
			merge(into, from)
		}
	}
}
