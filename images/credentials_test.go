package images

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRegistryPattern(t *testing.T) {
	for _, tc := range []struct{ key, want string }{
		{"registry.example", "registry.example"},
		{"registry.example:5000", "registry.example:5000"},
		{"https://registry.example", "registry.example"},
		{"http://registry.example/", "registry.example"},
		{"https://index.docker.io/v1/", "index.docker.io"},
		{"index.docker.io/v2/", "index.docker.io"},
		{"registry.example/v1", "registry.example"},
		{"docker.io", "index.docker.io"},
		{"docker.io/team", "index.docker.io/team"},
		{"registry.example/team/app", "registry.example/team/app"},
		{"registry.example/v2/team/", "registry.example/team"},
		{"registry.example/v10/team", "registry.example/v10/team"},
		{"*.example", "*.example"},
		{"", ""},
	} {
		if got := registryPattern(tc.key); got != tc.want {
			t.Errorf("registryPattern(%q) = %q, want %q", tc.key, got, tc.want)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, image string
		want           bool
	}{
		{"registry.example", "registry.example/app:1", true},
		{"registry.example", "registry.example/team/app@sha256:" + strings.Repeat("a", 64), true},
		{"registry.example", "other.example/app", false},
		{"registry.example", "sub.registry.example/app", false},
		{"example", "registry.example/app", false},

		{"registry.example:5000", "registry.example:5000/app", true},
		{"registry.example:5000", "registry.example/app", false},
		{"registry.example", "registry.example:5000/app", false},
		{"registry.example:5000", "registry.example:5001/app", false},

		{"*.example", "registry.example/app", true},
		{"*.example", "a.registry.example/app", false},
		{"*.*.example", "a.registry.example/app", true},
		{"reg*.example", "registry.example/app", true},
		{"reg*.example", "other.example/app", false},
		{"registry.*", "registry.example/app", true},
		{"registry.exampl?", "registry.example/app", true},
		{"*", "registry.example/app", false},
		{"*.example:5000", "registry.example:5000/app", true},
		{"*.example:5000", "registry.example/app", false},

		{"registry.example/team", "registry.example/team/app", true},
		{"registry.example/team/", "registry.example/team/app", true},
		{"registry.example/team", "registry.example/team", true},
		{"registry.example/team", "registry.example/teams", true}, // a prefix of letters, not of parts
		{"registry.example/team", "registry.example/other/app", false},
		{"registry.example/team/app", "registry.example/team", false},
		{"*.example/team", "registry.example/team/app", true},

		{"index.docker.io", "nginx", true},
		{"index.docker.io", "nginx:1", true},
		{"index.docker.io", "team/app", true},
		{"index.docker.io", "docker.io/team/app", true},
		{"index.docker.io/team", "team/app", true},
		{"index.docker.io/library", "nginx", true},
		{"index.docker.io", "localhost/app", false},
		{"index.docker.io", "registry.example/app", false},
		{"localhost", "localhost/app", true},
		{"[::1]:5000", "[::1]:5000/app", true},
		{"[::1]", "[::1]/app", true},
		{"[::1]", "[::1]:5000/app", false},

		{"", "registry.example/app", false},
		{"[", "registry.example/app", false},
		{"[.example", "registry.example/app", false},
		{"registry.example", "Not A Name", false},
	} {
		if got := matches(tc.pattern, tc.image); got != tc.want {
			t.Errorf("matches(%q, %q) = %t, want %t", tc.pattern, tc.image, got, tc.want)
		}
	}
}

// secret holds data under key.
func secret(name, key, data string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Data: map[string][]byte{key: []byte(data)}}
}

// config is a docker configuration with a user for each registry.
func config(registryAndUser ...string) string {
	entries := map[string]dockerEntry{}
	for i := 0; i < len(registryAndUser); i += 2 {
		entries[registryAndUser[i]] = dockerEntry{Username: registryAndUser[i+1], Password: "x"}
	}
	b, err := json.Marshal(map[string]any{"auths": entries})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func users(creds []credential) string {
	var out []string
	for _, c := range creds {
		out = append(out, c.auth.Username)
	}
	return strings.Join(out, " ")
}

func TestLookup(t *testing.T) {
	one := secret("one", v1.DockerConfigJsonKey, config("registry.example", "host", "registry.example/team/app", "app", "registry.example/team", "team", "other.example", "other"))
	two := secret("two", v1.DockerConfigJsonKey, config("registry.example", "second", "*.example", "glob"))
	legacy := secret("legacy", v1.DockerConfigKey, `{"registry.example": {"username": "legacy"}}`)
	hub := secret("hub", v1.DockerConfigJsonKey, config("https://index.docker.io/v1/", "hub", "docker.io", "also"))
	for _, tc := range []struct {
		name, image string
		secrets     []*v1.Secret
		want        string
	}{
		{"none", "registry.example/app", nil, ""},
		{"the longest first", "registry.example/team/app", []*v1.Secret{one}, "app team host"},
		{"only those that match", "registry.example/app", []*v1.Secret{one}, "host"},
		{"of equal ones the first secret's", "registry.example/app", []*v1.Secret{one, two}, "host second glob"},
		{"in the order of the secrets", "registry.example/app", []*v1.Secret{two, one}, "second host glob"},
		{"legacy format", "registry.example/app", []*v1.Secret{legacy}, "legacy"},
		{"unqualified", "nginx", []*v1.Secret{hub, one}, "also hub"},
		{"no match", "elsewhere.example.org/app", []*v1.Secret{one, two, hub}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 10 { // a map's order is another one each time
				got, skipped, err := lookup(tc.image, tc.secrets)
				if err != nil || skipped != nil || users(got) != tc.want {
					t.Fatalf("credentials = %q (%v, %v), want %q", users(got), skipped, err, tc.want)
				}
			}
		})
	}
}

func TestLookupOfBadSecrets(t *testing.T) {
	good := secret("good", v1.DockerConfigJsonKey, config("registry.example", "ann"))
	for _, tc := range []struct {
		name    string
		bad     *v1.Secret
		skipped string // this one, but the good one is used
		wrong   string // this one, and no pull
	}{
		{name: "not for pulls", bad: secret("bad", "token", "x"), skipped: "pull secret prod/bad: the Secret has neither .dockerconfigjson nor .dockercfg"},
		{name: "empty", bad: secret("bad", v1.DockerConfigJsonKey, ""), skipped: "pull secret prod/bad: the Secret has neither .dockerconfigjson nor .dockercfg"},
		{name: "no JSON", bad: secret("bad", v1.DockerConfigJsonKey, "s3cr3t"), wrong: "pull secret prod/bad: .dockerconfigjson: not valid JSON"},
		{name: "no JSON, legacy", bad: secret("bad", v1.DockerConfigKey, "s3cr3t"), wrong: "pull secret prod/bad: .dockercfg: not valid JSON"},
		{name: "other JSON", bad: secret("bad", v1.DockerConfigJsonKey, `["s3cr3t"]`), wrong: "pull secret prod/bad: .dockerconfigjson: not valid JSON"},
		{name: "no base64", bad: secret("bad", v1.DockerConfigJsonKey, `{"auths":{"r":{"auth":"s3cr3t!"}}}`), wrong: `pull secret prod/bad: auth of "r": not valid base64`},
		{name: "no colon", bad: secret("bad", v1.DockerConfigJsonKey, `{"auths":{"r":{"auth":"czNjcjN0"}}}`), wrong: `pull secret prod/bad: auth of "r": want user:password in base64`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			creds, skipped, err := lookup("registry.example/app", []*v1.Secret{tc.bad, good})
			if fmt.Sprint(skipped) != orNil(tc.skipped) || fmt.Sprint(err) != orNil(tc.wrong) {
				t.Errorf("skipped %v, error %v; want %s and %s", skipped, err, orNil(tc.skipped), orNil(tc.wrong))
			}
			if strings.Contains(fmt.Sprint(skipped, err), "s3cr3t") {
				t.Errorf("%v, %v shows the secret", skipped, err)
			}
			if users(creds) != "ann" {
				t.Errorf("credentials = %q, want those of the good secret", users(creds))
			}
		})
	}
}

func orNil(s string) string {
	if s == "" {
		return "<nil>"
	}
	return s
}

func TestAuthConfig(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, tc := range []struct {
		name, entry, want string
	}{
		{"user and password", `{"username": "u", "password": "p"}`, "u p  "},
		{"auth", `{"auth": "` + b64([]byte("u:p")) + `"}`, "u p  "},
		{"auth wins", `{"username": "x", "password": "y", "auth": "` + b64([]byte("u:p")) + `"}`, "u p  "},
		{"auth without padding", `{"auth": "` + base64.RawStdEncoding.EncodeToString([]byte("u:p0")) + `"}`, "u p0  "},
		{"a colon in the password", `{"auth": "` + b64([]byte("u:p:q")) + `"}`, "u p:q  "},
		{"no password", `{"auth": "` + b64([]byte("u:")) + `"}`, "u   "},
		{"tokens", `{"identitytoken": "i", "registrytoken": "r"}`, "  i r"},
		{"nothing", `{}`, "   "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			creds, _, err := lookup("r.example/app", []*v1.Secret{secret("s", v1.DockerConfigJsonKey, `{"auths": {"r.example": `+tc.entry+`}}`)})
			if err != nil || len(creds) != 1 {
				t.Fatalf("credentials = %v (%v), want one", creds, err)
			}
			c := creds[0].auth
			if got := strings.Join([]string{c.Username, c.Password, c.IdentityToken, c.RegistryToken}, " "); got != tc.want {
				t.Errorf("credential = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStringData(t *testing.T) {
	s := secret("s", v1.DockerConfigJsonKey, config("r.example", "old"))
	s.StringData = map[string]string{v1.DockerConfigJsonKey: config("r.example", "new")}
	if got, _, err := lookup("r.example/app", []*v1.Secret{s}); err != nil || users(got) != "new" {
		t.Errorf("credentials = %q (%v), want that of stringData", users(got), err)
	}
}

func FuzzDockerConfig(f *testing.F) {
	for _, s := range []string{
		"", "null", "{}", `{"auths":null}`, `{"auths":{"":{}}}`, config("*.example", "u"), `{"auths":{"r.example":{"auth":"dTpw"}}}`,
		`{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}`, `{"auths":{"[::1]:5000":{"auth":"dTpw="}}}`, `{"r.example":{"auth":"%"}}`,
	} {
		f.Add(s, "r.example/app")
	}
	f.Fuzz(func(t *testing.T, data, image string) {
		for _, key := range []string{v1.DockerConfigJsonKey, v1.DockerConfigKey} {
			secrets := []*v1.Secret{secret("s", key, data)}
			creds, skipped, err := lookup(image, secrets)
			if (skipped != nil || err != nil) && len(creds) > 0 {
				t.Errorf("%s %q: credentials of a secret that is not read: %v, %v", key, data, skipped, err)
			}
			again, _, _ := lookup(image, secrets)
			if fmt.Sprint(auths(creds)) != fmt.Sprint(auths(again)) {
				t.Errorf("%s %q: credentials %v, and then %v", key, data, creds, again)
			}
			if _, err := reference.ParseNormalizedNamed(image); err != nil && len(creds) > 0 {
				t.Errorf("credentials for %q, which is no image: %v", image, creds)
			}
		}
	})
}
