package describe_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// A program describes requests itself, in place of rate_limits in the rules.
func Example() {
	set, err := rules.Load(fstest.MapFS{"limits.yaml": {Data: []byte(`
domain: web
descriptors:
  - key: user
    descriptors:
      - {key: path, value: /login, rate_limit: {unit: minute, requests_per_unit: 1}}
`)}})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	decider := rules.Decider{Engine: engine, Describers: []describe.Describer{
		describe.By(describe.ContextValue("user", "user", false), describe.Path("path")),
	}}
	h := rules.NewGuard(decider, httplimit.Config{}).Wrap(http.NotFoundHandler())
	for _, user := range []string{"ann", "bob", "ann"} {
		r := httptest.NewRequest("POST", "/LOGIN/", nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(describe.WithValue(r.Context(), "user", user)))
		fmt.Println(user, w.Code)
	}
	// Output:
	// ann 404
	// bob 404
	// ann 429
}
