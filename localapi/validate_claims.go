package localapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/apicheck"
)

// adminLabel marks namespaces whose claims may have admin access to devices.
const adminLabel = "resource.kubernetes.io/admin-access"

// checkResourceClaim checks a claim of devices. What is asked for cannot change: devices have
// been, or will be, allocated for it.
func (s *Server) checkResourceClaim(c, old *resourcev1.ResourceClaim, spec *field.Path) field.ErrorList {
	if old != nil {
		if equality.Semantic.DeepEqual(c.Spec, old.Spec) {
			return nil
		}
		return field.ErrorList{field.Invalid(spec, nil, apivalidation.FieldImmutableErrorMsg)}
	}
	check := claimChecker{devices: &c.Spec.Devices}
	it, ok := s.item(s.namespaces, key{Name: c.Namespace})
	check.admin = ok && it.Object.GetLabels()[adminLabel] == "true"
	check.claim(spec.Child("devices"))
	return check.errs
}

// claimChecker gathers the mistakes of a claim.
type claimChecker struct {
	devices *resourcev1.DeviceClaim
	admin   bool // may be asked for
	errs    field.ErrorList
}

func (c *claimChecker) add(e *field.Error) { c.errs = append(c.errs, e) }

func (c *claimChecker) says(p *field.Path, value string, msgs []string) {
	for _, m := range msgs {
		c.add(field.Invalid(p, value, m))
	}
}

// oneOf checks a word.
func oneOf[T ~string](c *claimChecker, p *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		c.add(field.NotSupported(p, value, allowed))
	}
}

// most adds an error if a list has more elements than allowed.
func (c *claimChecker) most(p *field.Path, n, most int) {
	if n > most {
		c.add(field.TooMany(p, n, most))
	}
}

func (c *claimChecker) claim(p *field.Path) {
	d := c.devices
	c.most(p.Child("requests"), len(d.Requests), resourcev1.DeviceRequestsMaxSize)
	names := map[string]bool{}
	for i := range d.Requests {
		c.request(&d.Requests[i], names, p.Child("requests").Index(i))
	}
	c.most(p.Child("constraints"), len(d.Constraints), resourcev1.DeviceConstraintsMaxSize)
	for i := range d.Constraints {
		x, xp := &d.Constraints[i], p.Child("constraints").Index(i)
		c.references(x.Requests, names, xp.Child("requests"))
		if (x.MatchAttribute == nil) == (x.DistinctAttribute == nil) {
			c.add(field.Required(xp, "exactly one of matchAttribute and distinctAttribute"))
		}
		c.attribute(x.MatchAttribute, xp.Child("matchAttribute"))
		c.attribute(x.DistinctAttribute, xp.Child("distinctAttribute"))
	}
	c.most(p.Child("config"), len(d.Config), resourcev1.DeviceConfigMaxSize)
	for i := range d.Config {
		x, xp := &d.Config[i], p.Child("config").Index(i)
		c.references(x.Requests, names, xp.Child("requests"))
		if xp = xp.Child("opaque"); x.Opaque == nil {
			c.add(field.Required(xp, ""))
			continue
		}
		if x.Opaque.Driver == "" {
			c.add(field.Required(xp.Child("driver"), ""))
		}
		c.errs = append(c.errs, apicheck.DriverName(x.Opaque.Driver, xp.Child("driver"))...)
		c.parameters(&x.Opaque.Parameters, xp.Child("parameters"))
	}
}

// request checks one request, and notes its name, and REQUEST/NAME of what it has to choose
// from.
func (c *claimChecker) request(r *resourcev1.DeviceRequest, names map[string]bool, p *field.Path) {
	c.name(r.Name, r.Name, names, p.Child("name"))
	if (r.Exactly == nil) == (len(r.FirstAvailable) == 0) {
		c.add(field.Required(p, "exactly one of exactly and firstAvailable"))
		return
	}
	if e := r.Exactly; e != nil {
		at := p.Child("exactly")
		c.devicesOf(e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, at)
		if deref(e.AdminAccess) && !c.admin {
			c.add(field.Forbidden(at.Child("adminAccess"), "the namespace needs the label "+adminLabel+": true"))
		}
	}
	c.most(p.Child("firstAvailable"), len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize)
	for i := range r.FirstAvailable {
		x, xp := &r.FirstAvailable[i], p.Child("firstAvailable").Index(i)
		c.name(x.Name, r.Name+"/"+x.Name, names, xp.Child("name"))
		c.devicesOf(x.DeviceClassName, x.Selectors, x.AllocationMode, x.Count, x.Tolerations, xp)
	}
}

// name checks the name of a request, and that no other has it.
func (c *claimChecker) name(name, full string, names map[string]bool, p *field.Path) {
	c.says(p, name, validation.IsDNS1123Label(name))
	if names[full] {
		c.add(field.Duplicate(p, name))
	}
	names[full] = true
}

// devicesOf checks which devices are asked for.
func (c *claimChecker) devicesOf(class string, selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration, p *field.Path) {
	if class == "" {
		c.add(field.Required(p.Child("deviceClassName"), ""))
	} else {
		c.says(p.Child("deviceClassName"), class, validation.IsDNS1123Subdomain(class))
	}
	c.most(p.Child("selectors"), len(selectors), resourcev1.DeviceSelectorsMaxSize)
	for i := range selectors {
		sp := p.Child("selectors").Index(i).Child("cel")
		switch cel := selectors[i].CEL; {
		case cel == nil:
			c.add(field.Required(sp, ""))
		case cel.Expression == "":
			c.add(field.Required(sp.Child("expression"), ""))
		case len(cel.Expression) > resourcev1.CELSelectorExpressionMaxLength:
			c.add(field.TooLong(sp.Child("expression"), "", resourcev1.CELSelectorExpressionMaxLength))
		}
	}
	oneOf(c, p.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll)
	switch {
	case mode == resourcev1.DeviceAllocationModeAll && count != 0:
		c.add(field.Invalid(p.Child("count"), count, "must not stand beside allocationMode All"))
	case mode == resourcev1.DeviceAllocationModeExactCount && count <= 0:
		c.add(field.Invalid(p.Child("count"), count, "must be greater than zero"))
	}
	c.most(p.Child("tolerations"), len(tolerations), resourcev1.DeviceTolerationsMaxLength)
	for i := range tolerations {
		t, tp := &tolerations[i], p.Child("tolerations").Index(i)
		if t.Key != "" {
			c.says(tp.Child("key"), t.Key, validation.IsQualifiedName(t.Key))
		}
		oneOf(c, tp.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)
		oneOf(c, tp.Child("effect"), t.Effect, "", resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute)
		if t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "" {
			c.add(field.Invalid(tp.Child("value"), t.Value, "must be empty with operator Exists"))
		} else {
			c.says(tp.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
		}
	}
}

// references checks names of requests, REQUEST or REQUEST/NAME.
func (c *claimChecker) references(list []string, names map[string]bool, p *field.Path) {
	c.most(p, len(list), resourcev1.DeviceRequestsMaxSize)
	seen := map[string]bool{}
	for i, name := range list {
		switch {
		case !names[name]:
			c.add(field.NotFound(p.Index(i), name))
		case seen[name]:
			c.add(field.Duplicate(p.Index(i), name))
		}
		seen[name] = true
	}
}

// attribute checks DOMAIN/NAME of an attribute; nil is none.
func (c *claimChecker) attribute(name *resourcev1.FullyQualifiedName, p *field.Path) {
	if name == nil {
		return
	}
	domain, id, _ := strings.Cut(string(*name), "/")
	if domain == "" || id == "" {
		c.add(field.Invalid(p, *name, "must be DOMAIN/NAME"))
		return
	}
	if strings.Contains(id, "/") { // of which the API server takes any
		return
	}
	c.errs = append(c.errs, apicheck.DriverName(domain, p)...)
	if len(id) > resourcev1.DeviceMaxIDLength {
		c.add(field.TooLong(p, "", resourcev1.DeviceMaxIDLength))
	}
	c.says(p, id, validation.IsCIdentifier(id))
}

// parameters checks what a driver is given: an object of JSON.
func (c *claimChecker) parameters(raw *runtime.RawExtension, p *field.Path) {
	text := bytes.TrimSpace(raw.Raw)
	switch {
	case len(text) == 0 || string(text) == "null":
		c.add(field.Required(p, ""))
	case len(text) > resourcev1.OpaqueParametersMaxLength:
		c.add(field.TooLong(p, "", resourcev1.OpaqueParametersMaxLength))
	case text[0] != '{' || !json.Valid(text):
		c.add(field.Invalid(p, "<value omitted>", "must be a JSON object"))
	}
}

// defaultResourceClaim fills in what the API has defaults for.
func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	fill := func(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
		if *mode == "" {
			*mode = resourcev1.DeviceAllocationModeExactCount
		}
		if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
		for i := range tolerations {
			if tolerations[i].Operator == "" {
				tolerations[i].Operator = resourcev1.DeviceTolerationOpEqual
			}
		}
	}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			fill(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range r.FirstAvailable {
			x := &r.FirstAvailable[j]
			fill(&x.AllocationMode, &x.Count, x.Tolerations)
		}
	}
}
