package httplimit

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// guards holds the Strategies on which a middleware uses default names. Two such middlewares with
// equal limits would share budgets unnoticed. An entry is removed when its middleware is garbage
// collected.
var guards = struct {
	mu      sync.Mutex
	unnamed map[any]*weir.Limit // guarded by mu; by identity; nil: its numbers are in Config
}{unnamed: make(map[any]*weir.Limit)}

// claimDefaultNames panics if g and another middleware use default names on one Strategy, unless
// they are given one and the same Limit.
func claimDefaultNames(g *Guard) {
	claims := make(map[any]*weir.Limit)
	guards.mu.Lock()
	defer guards.mu.Unlock()
	for _, p := range g.policies {
		if !p.unnamed {
			continue
		}
		id := identity(p.Strategy)
		if id == nil {
			continue
		}
		if p.limit != nil { // limits that differ count separately
			id = [2]any{id, p.limit.String()}
		}
		if _, claimed := claims[id]; claimed {
			continue
		}
		if other, ok := guards.unnamed[id]; ok && (other == nil || other != p.limit) {
			panic(fmt.Sprintf("httplimit: a second middleware without a name on one %s: give its policy "+
				"%s a Name of its own, or the first one's Name to share the budget", p.shown.strategy,
				structuredfield.Quote(p.Name)))
		}
		claims[id] = p.limit
	}
	if len(claims) == 0 {
		return
	}
	maps.Copy(guards.unnamed, claims)
	runtime.AddCleanup(g, releaseClaims, claims)
}

func releaseClaims(claims map[any]*weir.Limit) {
	guards.mu.Lock()
	defer guards.mu.Unlock()
	for id := range claims {
		delete(guards.unnamed, id)
	}
}

// identity returns a value that is equal for Strategies that share counts, or nil if that is
// unknown. The methods of a Limiter return a new Strategy each time; Strategies of one type and
// algorithm on one Limiter share counts. The Limiter is compared by a weak pointer, since its
// address may be reused before the claim of a collected middleware is released.
func identity(s weir.Strategy) any {
	if a := weir.CounterOf(s).About(); a.Limiter != nil {
		return [3]any{reflect.TypeOf(a.Of), a.Name, weak.Make(a.Limiter)}
	}
	if reflect.TypeOf(s).Kind() == reflect.Pointer {
		return s
	}
	return nil // equal values need not share anything
}
