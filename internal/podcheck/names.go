package podcheck

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxUID is the maximum length of a UID in bytes. The API has no limit. The UIDs of API
// servers and the hashes of static pods have less than 40 bytes.
const maxUID = 128

const wantUID = "must be 1 to 128 ASCII letters, digits, '.', '_' and '-', and neither '.' nor '..'"

// UID returns an error if a UID must not become the name of a directory. A valid UID has
// 1 to 128 bytes of A-Z, a-z, 0-9, ".", "_" and "-", and is neither "." nor "..".
func UID(uid types.UID) error {
	good := len(uid) > 0 && len(uid) <= maxUID && uid != "." && uid != ".."
	for i := 0; i < len(uid) && good; i++ {
		c := uid[i]
		good = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !good {
		return fmt.Errorf("%q: %s", clip(string(uid)), wantUID)
	}
	return nil
}

// Names checks only the names that become parts of paths: the names of the pod, its
// namespace, its containers and its volumes, and the UID. It returns at most 20 errors.
func Names(p *v1.Pod) field.ErrorList {
	v := &checker{pod: p}
	v.names()
	return v.errs
}

func (v *checker) names() {
	meta := field.NewPath("metadata")
	v.says(meta.Child("name"), v.pod.Name, short(v.pod.Name, validation.IsDNS1123Subdomain))
	v.says(meta.Child("namespace"), v.pod.Namespace, short(v.pod.Namespace, validation.IsDNS1123Label))
	if err := UID(v.pod.UID); err != nil {
		v.add(field.Invalid(meta.Child("uid"), clip(string(v.pod.UID)), wantUID))
	}
	seen := map[string]bool{}
	for c, p := range v.containers {
		if v.full() {
			return
		}
		v.name(p, c.Name, seen)
	}
	clear(seen)
	for i := range v.pod.Spec.Volumes {
		if v.full() {
			return
		}
		v.name(field.NewPath("spec", "volumes").Index(i), v.pod.Spec.Volumes[i].Name, seen)
	}
}

// name checks the name of one container or volume, and adds it to seen. It adds an error
// if seen already has the name.
func (v *checker) name(p *field.Path, name string, seen map[string]bool) {
	msgs := short(name, validation.IsDNS1123Label)
	v.says(p.Child("name"), name, msgs)
	if len(msgs) == 0 && seen[name] {
		v.add(field.Duplicate(p.Child("name"), name))
	}
	seen[name] = true
}

// short returns the messages of check for a name. For a name that is too long, it returns
// a message without calling check, which would take much time.
func short(name string, check func(string) []string) []string {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return []string{validation.MaxLenError(validation.DNS1123SubdomainMaxLength)}
	}
	return check(name)
}
