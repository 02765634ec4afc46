package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/nodewright/nodewright/server/auth"
)

// Whoever knows a token is somebody, and may only read.
func ExampleFirstOf() {
	who := auth.FirstOf(auth.AuthenticatorFunc(func(r *http.Request) (*auth.User, error) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return nil, errors.New("unknown token")
		}
		return &auth.User{Name: "ann"}, nil
	}))
	may := auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (bool, string, error) {
		return a.Verb == "get", "only reading is allowed", nil
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r := httptest.NewRequest(method, "/metrics", nil)
		r.Header.Set("Authorization", "Bearer secret")
		user, err := who.Authenticate(r)
		if err != nil {
			panic(err)
		}
		allowed, _, _ := may.Authorize(r.Context(), auth.Of(user, r, "edge-1")[0])
		fmt.Println(user.Name, auth.Verb(method), allowed)
	}
	// Output:
	// ann get true
	// ann create false
}
