package images

import (
	"strings"
	"testing"

	"github.com/distribution/reference"
)

func TestNormalize(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, tc := range []struct{ image, want string }{
		{"app", "app:latest"},
		{"team/app", "team/app:latest"},
		{"docker.io/library/app", "docker.io/library/app:latest"},
		{"localhost:5000/app", "localhost:5000/app:latest"},
		{"registry.example:5000/app", "registry.example:5000/app:latest"},
		{"app:1", "app:1"},
		{"registry.example:5000/app:1", "registry.example:5000/app:1"},
		{"app" + digest, "app" + digest},
		{"app:1" + digest, "app:1" + digest},

		{"", ""},
		{" ", ""},
		{"App", ""},
		{"app:", ""},
		{"app:a b", ""},
		{"app@sha256:short", ""},
		{"-app", ""},
		{"app//x", ""},
		{"https://registry.example/app", ""},
		{strings.Repeat("a", 64), ""}, // that would be an image's ID
	} {
		got, err := normalize(tc.image)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("normalize(%q) = %q (%v), want %q", tc.image, got, err, tc.want)
		}
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"app", "app:1", "r.example:5000/team/app", "app@sha256:" + strings.Repeat("a", 64), "[::1]:5000/app", "UPPER/app", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := normalize(image)
		if err != nil {
			return
		}
		if again, err := normalize(name); err != nil || again != name {
			t.Errorf("%q became %q, and that %q (%v)", image, name, again, err)
		}
		if name != image && name != image+":latest" {
			t.Errorf("%q became %q", image, name)
		}
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil || reference.IsNameOnly(named) {
			t.Errorf("%q became %q, with neither tag nor digest (%v)", image, name, err)
		}
		// A registry's own credentials are for every image of it.
		if host := reference.Domain(named); !matches(registryPattern(host), name) {
			t.Errorf("credentials of %q are not for %q", host, name)
		}
	})
}
