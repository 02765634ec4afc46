package localapi

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/apicheck"
	"github.com/nodewright/nodewright/internal/podcheck"
)

// adminLabel is the label of namespaces whose claims may have admin access to devices.
const adminLabel = "resource.kubernetes.io/admin-access"

// checkResourceClaim checks a ResourceClaim. Its spec cannot change, since devices are allocated
// for it.
func (s *Server) checkResourceClaim(c, old *resourcev1.ResourceClaim, spec *field.Path) field.ErrorList {
	if old != nil {
		if equality.Semantic.DeepEqual(c.Spec, old.Spec) {
			return nil
		}
		return field.ErrorList{field.Invalid(spec, nil, apivalidation.FieldImmutableErrorMsg)}
	}
	check := s.claimChecker(c)
	check.claim(spec.Child("devices"))
	return append(check.errs, s.checkResourceClaimStatus(c, &resourcev1.ResourceClaimStatus{}, field.NewPath("status"))...)
}

func (s *Server) claimChecker(c *resourcev1.ResourceClaim) *claimChecker {
	it, ok := s.item(s.namespaces, key{Name: c.Namespace})
	return &claimChecker{devices: &c.Spec.Devices, admin: ok && it.Object.GetLabels()[adminLabel] == "true"}
}

// deviceID identifies a device in a claim's status.
type deviceID struct{ driver, pool, device, share string }

func allocatedDevices(a *resourcev1.AllocationResult) map[deviceID]bool {
	out := map[deviceID]bool{}
	if a != nil {
		for _, r := range a.Devices.Results {
			out[deviceID{r.Driver, r.Pool, r.Device, string(deref(r.ShareID))}] = true
		}
	}
	return out
}

func idOf(d *resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, deref(d.ShareID)}
}

// dropDevices removes the devices from a claim's status that are no longer allocated.
func dropDevices(is, was *resourcev1.ResourceClaimStatus) {
	now, before := allocatedDevices(is.Allocation), allocatedDevices(was.Allocation)
	is.Devices = slices.DeleteFunc(is.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return before[idOf(&d)] && !now[idOf(&d)] })
}

// checkResourceClaimStatus checks the status of a claim. An allocation cannot change.
func (s *Server) checkResourceClaimStatus(claim *resourcev1.ResourceClaim, was *resourcev1.ResourceClaimStatus, at *field.Path) field.ErrorList {
	c, is := s.claimChecker(claim), &claim.Status
	p := at.Child("reservedFor")
	c.most(p, len(is.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize)
	for i, r := range is.ReservedFor {
		c.required(p.Index(i).Child("resource"), r.Resource)
		c.required(p.Index(i).Child("name"), r.Name)
		c.required(p.Index(i).Child("uid"), string(r.UID))
		if slices.ContainsFunc(is.ReservedFor[:i], func(o resourcev1.ResourceClaimConsumerReference) bool { return o.UID == r.UID }) {
			c.add(field.Duplicate(p.Index(i).Child("uid"), r.UID))
		}
		if claim.DeletionTimestamp != nil && !slices.Contains(was.ReservedFor, r) {
			c.add(field.Forbidden(p.Index(i), "the claim is being deleted"))
		}
	}
	if len(is.ReservedFor) > 0 && is.Allocation == nil {
		c.add(field.Forbidden(p, "nothing is allocated"))
	}
	switch {
	case is.Allocation == nil:
	case was.Allocation == nil:
		c.allocation(is.Allocation, at.Child("allocation"))
	case !equality.Semantic.DeepEqual(is.Allocation, was.Allocation):
		c.add(field.Invalid(at.Child("allocation"), nil, apivalidation.FieldImmutableErrorMsg))
	}
	allocated, seen := allocatedDevices(is.Allocation), map[deviceID]bool{}
	for i := range is.Devices {
		d, dp := &is.Devices[i], at.Child("devices").Index(i)
		id := idOf(d)
		c.device(id, d.ShareID, dp)
		if !allocated[id] {
			c.add(field.NotFound(dp, id.driver+"/"+id.pool+"/"+id.device))
		}
		if seen[id] {
			c.add(field.Duplicate(dp, id.device))
		}
		seen[id] = true
		c.most(dp.Child("conditions"), len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)
		c.errs = append(c.errs, metavalidation.ValidateConditions(d.Conditions, dp.Child("conditions"))...)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			c.parameters(d.Data, dp.Child("data"))
		}
		c.network(d.NetworkData, dp.Child("networkData"))
	}
	return c.errs
}

// allocation checks the allocation of a claim.
func (c *claimChecker) allocation(a *resourcev1.AllocationResult, p *field.Path) {
	names := map[string]bool{}
	for _, r := range c.devices.Requests {
		names[r.Name] = true
		for _, x := range r.FirstAvailable {
			names[r.Name+"/"+x.Name] = true
		}
	}
	if a.NodeSelector != nil {
		c.errs = append(c.errs, podcheck.Words(a.NodeSelector, p.Child("nodeSelector"))...)
		c.errs = append(c.errs, apicheck.NodeSelector(a.NodeSelector, p.Child("nodeSelector"))...)
	}
	rp := p.Child("devices", "results")
	c.most(rp, len(a.Devices.Results), resourcev1.AllocationResultsMaxSize)
	for i := range a.Devices.Results {
		r, p := &a.Devices.Results[i], rp.Index(i)
		if !names[r.Request] {
			c.add(field.NotFound(p.Child("request"), r.Request))
		}
		var share *string
		if r.ShareID != nil {
			share = (*string)(r.ShareID)
		}
		c.device(deviceID{driver: r.Driver, pool: r.Pool, device: r.Device}, share, p)
		if deref(r.AdminAccess) && !c.admin {
			c.add(field.Forbidden(p.Child("adminAccess"), "the namespace has no label "+adminLabel))
		}
		c.tolerations(r.Tolerations, p.Child("tolerations"))
		c.binding(r.BindingConditions, resourcev1.BindingConditionsMaxSize, r.BindingFailureConditions, p.Child("bindingConditions"))
		c.binding(r.BindingFailureConditions, resourcev1.BindingFailureConditionsMaxSize, r.BindingConditions, p.Child("bindingFailureConditions"))
	}
	cp := p.Child("devices", "config")
	c.most(cp, len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize)
	for i := range a.Devices.Config {
		x, p := &a.Devices.Config[i], cp.Index(i)
		oneOf(c, p.Child("source"), x.Source, resourcev1.AllocationConfigSourceClass, resourcev1.AllocationConfigSourceClaim)
		c.configuration(x.Requests, names, x.Opaque, p)
	}
}

// binding checks one of the two lists of a device's binding conditions. If one is
// empty, the other must be too.
func (c *claimChecker) binding(list []string, most int, other []string, p *field.Path) {
	c.most(p, len(list), most)
	if len(list) == 0 && len(other) > 0 {
		c.add(field.Required(p, "bindingConditions and bindingFailureConditions must be set together"))
	}
	for i, name := range list {
		c.says(p.Index(i), name, validation.IsQualifiedName(name))
		if slices.Contains(list[:i], name) || slices.Contains(other, name) {
			c.add(field.Duplicate(p.Index(i), name))
		}
	}
}

// device checks the names of a device.
func (c *claimChecker) device(id deviceID, share *string, p *field.Path) {
	c.required(p.Child("driver"), id.driver)
	c.errs = append(c.errs, apicheck.DriverName(id.driver, p.Child("driver"))...)
	if len(id.pool) > resourcev1.PoolNameMaxLength {
		c.add(field.TooLong(p.Child("pool"), "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(id.pool, "/") {
		c.says(p.Child("pool"), id.pool, validation.IsDNS1123Subdomain(part))
	}
	c.says(p.Child("device"), id.device, validation.IsDNS1123Label(id.device))
	if share != nil && !lowerUUID.MatchString(*share) {
		c.add(field.Invalid(p.Child("shareID"), *share, "must be a UUID in lower case"))
	}
}

var lowerUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// network checks what a driver reports about a network device.
func (c *claimChecker) network(n *resourcev1.NetworkDeviceData, p *field.Path) {
	if n == nil {
		return
	}
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		c.add(field.TooLong(p.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		c.add(field.TooLong(p.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
	c.most(p.Child("ips"), len(n.IPs), resourcev1.NetworkDeviceDataMaxIPs)
	for i, ip := range n.IPs {
		c.errs = append(c.errs, validation.IsValidInterfaceAddress(p.Child("ips").Index(i), ip)...)
		if slices.Contains(n.IPs[:i], ip) {
			c.add(field.Duplicate(p.Child("ips").Index(i), ip))
		}
	}
}

// claimChecker collects the mistakes in a claim.
type claimChecker struct {
	devices *resourcev1.DeviceClaim
	admin   bool // admin access is allowed
	errs    field.ErrorList
}

func (c *claimChecker) add(e *field.Error) { c.errs = append(c.errs, e) }

func (c *claimChecker) says(p *field.Path, value string, msgs []string) {
	for _, m := range msgs {
		c.add(field.Invalid(p, value, m))
	}
}

func (c *claimChecker) required(p *field.Path, value string) {
	if value == "" {
		c.add(field.Required(p, ""))
	}
}

// oneOf adds an error if a value is not one of the allowed ones.
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
		c.configuration(d.Config[i].Requests, names, d.Config[i].Opaque, p.Child("config").Index(i))
	}
}

// configuration checks the parameters for a driver and the requests they are for.
func (c *claimChecker) configuration(requests []string, names map[string]bool, opaque *resourcev1.OpaqueDeviceConfiguration, p *field.Path) {
	c.references(requests, names, p.Child("requests"))
	if p = p.Child("opaque"); opaque == nil {
		c.add(field.Required(p, ""))
		return
	}
	c.required(p.Child("driver"), opaque.Driver)
	c.errs = append(c.errs, apicheck.DriverName(opaque.Driver, p.Child("driver"))...)
	c.parameters(&opaque.Parameters, p.Child("parameters"))
}

// request checks one request. It records its name, and REQUEST/NAME for its alternatives.
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

// name checks the name of a request, which must be unique.
func (c *claimChecker) name(name, full string, names map[string]bool, p *field.Path) {
	c.says(p, name, validation.IsDNS1123Label(name))
	if names[full] {
		c.add(field.Duplicate(p, name))
	}
	names[full] = true
}

// devicesOf checks which devices are requested.
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
		c.add(field.Invalid(p.Child("count"), count, "must not be set with allocationMode All"))
	case mode == resourcev1.DeviceAllocationModeExactCount && count <= 0:
		c.add(field.Invalid(p.Child("count"), count, "must be greater than zero"))
	}
	c.tolerations(tolerations, p.Child("tolerations"))
}

func (c *claimChecker) tolerations(list []resourcev1.DeviceToleration, p *field.Path) {
	c.most(p, len(list), resourcev1.DeviceTolerationsMaxLength)
	for i := range list {
		t, tp := &list[i], p.Index(i)
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

// references checks names of requests: REQUEST or REQUEST/NAME.
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

// attribute checks the name of an attribute, DOMAIN/NAME; nil means none.
func (c *claimChecker) attribute(name *resourcev1.FullyQualifiedName, p *field.Path) {
	if name == nil {
		return
	}
	domain, id, _ := strings.Cut(string(*name), "/")
	if domain == "" || id == "" {
		c.add(field.Invalid(p, *name, "must be DOMAIN/NAME"))
		return
	}
	if strings.Contains(id, "/") { // the API server allows any
		return
	}
	c.errs = append(c.errs, apicheck.DriverName(domain, p)...)
	if len(id) > resourcev1.DeviceMaxIDLength {
		c.add(field.TooLong(p, "", resourcev1.DeviceMaxIDLength))
	}
	c.says(p, id, validation.IsCIdentifier(id))
}

// parameters checks a driver's parameters, which must be a JSON object.
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

// defaultResourceClaim sets the API's defaults.
func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	tolerate := func(list []resourcev1.DeviceToleration) {
		for i := range list {
			if list[i].Operator == "" {
				list[i].Operator = resourcev1.DeviceTolerationOpEqual
			}
		}
	}
	fill := func(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
		if *mode == "" {
			*mode = resourcev1.DeviceAllocationModeExactCount
		}
		if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
		tolerate(tolerations)
	}
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			tolerate(a.Devices.Results[i].Tolerations)
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
