package httplimit

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/weirgo/weir"
)

// guards holds the Strategies on which a middleware uses default names. Two such middlewares with one limit would share
// budgets unnoticed. An entry goes when its middleware is garbage.
var guards struct {
	mu      sync.Mutex
	unnamed map[any]bool // guarded by mu; by identity
}

// claimDefaultNames panics if another middleware uses default names on a Strategy that m does, too.
func claimDefaultNames(m *middleware) {
	var claims []any
	guards.mu.Lock()
	defer guards.mu.Unlock()
	for _, p := range m.policies {
		id := identity(p.Strategy)
		if !p.unnamed || id == nil || containsClaim(claims, id) {
			continue
		}
		if guards.unnamed[id] {
			panic(fmt.Sprintf("httplimit: a second middleware without a name on one %s: give its policy %s a Name of its own, "+
				"or the first one's Name to share the budget", p.strategy, quote(p.Name)))
		}
		claims = append(claims, id)
	}
	if len(claims) == 0 {
		return
	}
	if guards.unnamed == nil {
		guards.unnamed = make(map[any]bool)
	}
	for _, id := range claims {
		guards.unnamed[id] = true
	}
	runtime.AddCleanup(m, releaseClaims, claims)
}

func releaseClaims(claims []any) {
	guards.mu.Lock()
	defer guards.mu.Unlock()
	for _, id := range claims {
		delete(guards.unnamed, id)
	}
}

func containsClaim(claims []any, id any) bool {
	for _, c := range claims {
		if c == id {
			return true
		}
	}
	return false
}

// identity returns a value that is equal for Strategies that count together, or nil if that is unknown. The methods of a
// Limiter return a new Strategy each time; those of one type on one Limiter count together.
func identity(s weir.Strategy) any {
	if limiter := limiterOf(reflect.ValueOf(s)); limiter != 0 {
		return [2]any{reflect.TypeOf(s), limiter}
	}
	if reflect.TypeOf(s).Kind() == reflect.Pointer {
		return s
	}
	return nil // equal values need not share anything
}

var limiterType = reflect.TypeFor[*weir.Limiter]()

// limiterOf returns the address of the Limiter that a Strategy of package weir counts in, or 0. The middleware that
// compares it keeps the Limiter alive.
func limiterOf(v reflect.Value) uintptr {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != limiterType.Elem().PkgPath() {
		return 0
	}
	for i := range v.NumField() {
		if f := v.Field(i); f.Type() == limiterType {
			return f.Pointer()
		} else if f.Kind() == reflect.Struct {
			if l := limiterOf(f); l != 0 {
				return l
			}
		}
	}
	return 0
}
