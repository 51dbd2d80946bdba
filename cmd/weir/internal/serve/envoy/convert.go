package envoy

import (
	"fmt"
	"math"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/rules"
)

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
