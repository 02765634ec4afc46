package podmgr

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// claimVersion is the apiVersion of ResourceClaims. Older versions have other fields and
// are not converted.
const claimVersion = "resource.k8s.io/v1"

// claim decodes a ResourceClaim. No scheduler allocates it, so its status must contain the
// allocation. A claim with any mistake is left out.
func (d *decoded) claim(raw []byte, o origin, n int, name string) {
	c := &resourceapi.ResourceClaim{}
	if !d.strict(raw, c, o, n, name) || !d.named(&c.ObjectMeta, o, n, name) {
		return
	}
	c.Namespace = orDefault(c.Namespace)
	if c.Status.Allocation == nil {
		d.problem(o, n, name, "status.allocation", "is missing; want the allocation that a scheduler would make")
		return
	}
	// After a mistake the search goes on, so that
	// one reading of the file lists all of them.
	good := true
	for i, r := range c.Status.Allocation.Devices.Results {
		// Driver, pool and device identify a device (KEP-4381), the request says
		// whose it is: without one of them no plugin could be asked to prepare it.
		for _, f := range [][2]string{{"request", r.Request}, {"driver", r.Driver}, {"pool", r.Pool}, {"device", r.Device}} {
			if f[1] == "" {
				d.problem(o, n, name, fmt.Sprintf("status.allocation.devices.results[%d].%s", i, f[0]), "is missing")
				good = false
			}
		}
	}
	if !good {
		return
	}
	// Prepared claims are recorded by UID: it must be the
	// same after a restart, so it is no random one.
	if c.UID == "" {
		c.UID = claimUID(c)
	}
	d.resources = append(d.resources, c)
}

// claimUID computes a UID from a claim's name and its allocation, so a claim with a changed
// allocation counts as a new claim. It has 32 hexadecimal digits, like the UIDs of static pods.
func claimUID(c *resourceapi.ResourceClaim) types.UID {
	h := fnv.New128a()
	allocation, err := json.Marshal(c.Status.Allocation)
	if err != nil { // it was JSON a moment ago
		allocation = nil
	}
	_, _ = fmt.Fprintf(h, "claim:%s/%s:%s", c.Namespace, c.Name, allocation)
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// ResourceClaims returns the ResourceClaims of a namespace, by name. The caller owns the map; the
// objects are shared and read-only. If two sources have a claim of the same name, the first
// source in Config.Sources is used.
func (m *Manager) ResourceClaims(namespace string) map[string]*resourceapi.ResourceClaim {
	return byName(m, namespace, func(s *Snapshot) []*resourceapi.ResourceClaim { return s.ResourceClaims })
}

// resourceClaims checks spec.resourceClaims and collects the names, which claimsOf looks up
// later. Claims from templates are refused: only a control plane creates them.
func (v *podValidator) resourceClaims(s *v1.PodSpec, p *field.Path) {
	v.claims = map[string]bool{}
	for i := range s.ResourceClaims {
		rc, cp := &s.ResourceClaims[i], p.Index(i)
		v.says(cp.Child("name"), rc.Name, validation.IsDNS1123Label(rc.Name))
		if v.claims[rc.Name] {
			v.add(field.Duplicate(cp.Child("name"), rc.Name))
		}
		v.claims[rc.Name] = true
		// A template needs the controller of a control plane, which makes claims of it.
		if rc.ResourceClaimTemplateName != nil {
			v.add(field.Forbidden(cp.Child("resourceClaimTemplateName"), "static pods may not reference templates of claims"))
		} else if rc.ResourceClaimName == nil || *rc.ResourceClaimName == "" {
			v.add(field.Required(cp.Child("resourceClaimName"), ""))
		} else {
			v.says(cp.Child("resourceClaimName"), *rc.ResourceClaimName, validation.IsDNS1123Subdomain(*rc.ResourceClaimName))
		}
	}
}

// claimsOf checks the claims of a container. Their names refer to spec.resourceClaims, not to
// ResourceClaim objects.
func (v *podValidator) claimsOf(claims []v1.ResourceClaim, p *field.Path) {
	seen := map[[2]string]bool{}
	for i, c := range claims {
		if !v.claims[c.Name] {
			v.add(field.NotFound(p.Index(i).Child("name"), c.Name))
		}
		if c.Request != "" {
			v.says(p.Index(i).Child("request"), c.Request, validation.IsDNS1123Label(c.Request))
		}
		all := [2]string{c.Name, ""}
		for other := range seen {
			if other[0] == c.Name && (other[1] == c.Request || other == all || c.Request == "") {
				v.add(field.Duplicate(p.Index(i), c.Name))
				break
			}
		}
		seen[[2]string{c.Name, c.Request}] = true
	}
}
