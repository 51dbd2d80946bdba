package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirgo/weir/httplimit"
)

func Example_failedLogins() {
	limiter := newLimiter()
	defer limiter.Close()
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})

	account := httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		// an empty key would be an error
		return cmp.Or(strings.ToLower(r.PostFormValue("user")), "none"), nil
	})
	byAddress := httplimit.RemoteAddr() // behind a proxy: ClientIP
	guard := httplimit.New(limiter.SlidingWindow().Limit(20, 15*time.Minute), httplimit.Config{
		Extractor: byAddress,
		Policies: []httplimit.Policy{{
			Strategy: limiter.SlidingWindow().Limit(5, 15*time.Minute).Named("account"),
			// without the address anybody could lock anybody out
			Extractor: httplimit.Join(byAddress, account),
		}},
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
	})
	handler := guard(login)

	try := func(user, password string) int {
		form := strings.NewReader("user=" + user + "&password=" + strings.ReplaceAll(password, " ", "+"))
		r, w := httptest.NewRequest(http.MethodPost, "/login", form), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 10 {
		try("alice", "correct horse") // a login that succeeds costs nothing
	}
	for range 6 {
		fmt.Print(try("alice", "guess"), " ")
	}
	fmt.Println(try("ALICE", "correct horse"), try("bob", "correct horse"))
	// Output: 401 401 401 401 401 429 429 200
}
