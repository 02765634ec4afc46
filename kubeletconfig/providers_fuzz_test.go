package kubeletconfig

import "testing"

// A configuration of credential providers is either loaded completely or rejected.
func FuzzCredentialProviders(f *testing.F) {
	f.Add([]byte(providersHead + plainProvider))
	f.Add([]byte(providersHead + "- {name: p, tokenAttributes: {cacheType: Token, requiredServiceAccountAnnotationKeys: ['a b', a, a]}}\n"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseProviders(raw)
		if err != nil {
			return
		}
		for _, p := range list {
			if p.DefaultCacheDuration == nil || p.TokenAttributes != nil && (p.TokenAttributes.RequireServiceAccount == nil || p.TokenAttributes.ServiceAccountTokenAudience == "") {
				t.Errorf("%+v was taken", p)
			}
		}
	})
}
