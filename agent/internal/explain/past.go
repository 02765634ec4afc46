package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

// Past explains the past of a pod, or of the node, by the entries about both. It is a pure function.
func Past(entries []record.Entry, q local.PastQuery, now time.Time) local.Past {
	p := &past{
		q: q, now: now, ofNode: q.Name == "",
		instances: map[string]*instance{}, endings: map[string]record.Act{}, lost: map[string]reason{},
		failed: map[string]*record.Probe{}, waits: map[string]time.Time{},
		pods: map[types.UID]*podPast{}, first: map[types.UID]time.Time{},
	}
	for i := range entries {
		p.add(&entries[i])
	}
	p.link()
	slices.SortStableFunc(p.moments, func(a, b moment) int { return a.At.Compare(b.At) })
	out := local.Past{Namespace: q.Namespace, Name: cmp.Or(q.Name, p.node)}
	if len(entries) > 0 {
		out.Begins = entries[0].At
	}
	if q.At.IsZero() {
		out.Moments, out.Stretches = p.between(q.Since, q.Until), p.stretches(q.Since, q.Until)
		return out
	}
	out.Answer, out.Moments = p.at()
	return out
}

// past is the past of a pod or node under construction.
type past struct {
	q      local.PastQuery
	now    time.Time
	ofNode bool
	node   string // name of the node

	moments   []moment
	instances map[string]*instance
	order     []*instance // all instances, in the order of the record
	endings   map[string]record.Act
	waits     map[string]time.Time     // end of the last reported wait, by container
	lost      map[string]reason        // why instances ended that lost their sandbox or whose postStart hook failed, by ID
	failed    map[string]*record.Probe // last failed liveness or startup probe, by the instance's ID
	pods      map[types.UID]*podPast
	wanted    *wantedPast // last version of the pod in its source
	status    []statusPast
	boots     []begin
	stopped   bool
	lastAt    time.Time               // time of the last entry
	first     map[types.UID]time.Time // time of a pod's first entry
	aways     []local.Stretch         // times without an agent
	pressure  []pressurePast
}

// moment is a local.Moment with the data for an answer about it.
type moment struct {
	local.Moment
	rank     int // how well it explains a state; the highest rank is chosen
	began    *instance
	ended    *instance
	verdict  *record.Verdict
	replaced bool
}

// The ranks of moments.
const (
	aside = iota
	step
	fault
	endOf
	startOf
	verdictOn
)

// instance is what the record says about one run of a container.
type instance struct {
	record.Instance
	container   string
	uid         types.UID
	life        uint32
	boot        string // boot of the machine in which the instance was first seen
	learned     time.Time
	endedAt     time.Time
	endedInBoot string
	ended       bool
	before      *instance
}

// podPast is the recorded past of one UID.
type podPast struct {
	waits bool // the last verdict lets the pod wait for its admission
	// ends are the reasons why the containers of the pod ended, oldest first.
	ends   []causePast
	sync   *record.Sync
	syncAt time.Time
	hooks  []hookSpan
	told   bool // there is a moment for the last failed sync
	ready  *record.Status
}

// hookSpan is a time in which all syncs failed because of a postStart hook. The zero to means that it goes on.
// Equal results of syncs are recorded once, so several hooks may have failed in it.
type hookSpan struct{ from, to time.Time }

// causePast is the reason, as a sentence, for which a pod's containers end from a time on.
type causePast struct {
	at  time.Time
	why string
}

// at returns the last reason that began before t or at most 1 s after it; "" if there is none. The
// extra second is needed since a reason may be recorded shortly after the fact that it explains.
func (p *podPast) at(t time.Time) string {
	why := ""
	for _, c := range p.ends {
		if !c.at.After(t.Add(time.Second)) {
			why = c.why
		}
	}
	return why
}

// wantedPast is the last version of the pod in its source.
type wantedPast struct {
	record.Wanted
	removedAt time.Time // time at which the source removed the pod with uid
	uid       types.UID
	at        time.Time
	uids      map[types.UID]bool
}

type statusPast struct {
	at time.Time
	record.Status
	gone bool
}

type begin struct {
	at   time.Time
	boot string
}

type pressurePast struct {
	at time.Time
	record.Condition
}

// tell adds a moment about an entry, with the formatted text, and returns it.
func (p *past) tell(e *record.Entry, at time.Time, kind string, rank int, text string, args ...any) *moment {
	p.moments = append(p.moments, moment{rank: rank, Moment: local.Moment{
		At: at, UID: string(e.Pod.UID), Container: e.Container, Kind: kind, Text: oneLine(fmt.Sprintf(text, args...)), Problem: rank == fault,
	}})
	return &p.moments[len(p.moments)-1]
}

// add takes an entry of the record into account. It adds the moments that follow from the entry.
func (p *past) add(e *record.Entry) {
	pod := p.pods[e.Pod.UID]
	if pod == nil {
		pod = &podPast{}
		p.pods[e.Pod.UID], p.first[e.Pod.UID] = pod, e.At
	}
	defer func() { p.lastAt = e.At }()
	switch f := e.Fact.(type) {
	case *record.Begin:
		p.begin(e, f)
	case *record.Stop:
		p.stopped = true
		p.tell(e, e.At, "stop", aside, "the agent was stopped; containers go on")
	case *record.Clock:
		way, by := "forward", f.By
		if by < 0 {
			way, by = "back", -by
		}
		p.tell(e, e.At, "clock", fault, "the clock of the machine was set %s by %s (or the machine was suspended)", way, spell(by))
	case *record.Gap:
		if f.Damaged {
			p.tell(e, e.At, "gap", aside, "a part of the record is damaged here: there may have been more")
		} else {
			p.tell(e, e.At, "gap", aside, "%d facts were not recorded here", f.Lost)
		}
	case *record.Condition:
		p.condition(e, f)
	case *record.Plugin:
		if f.Gone {
			p.tell(e, e.At, "plugin", fault, "the plugin of %s went away", f.Name)
		} else {
			p.tell(e, e.At, "plugin", step, "the plugin of %s is there again", f.Name)
		}
	case *record.Happened:
		if p.ofNode {
			p.tell(e, e.At, "happened", step, "event of the node: %s", f.Reason)
		}
	case *record.Wanted:
		p.want(e, f, pod)
	case *record.Verdict:
		p.judge(e, f, pod)
	case *record.Instance:
		p.instance(e, f)
	case *record.Probe:
		p.probe(e, f)
	case *record.Image:
		if f.Reason == "" && f.Took > 0 {
			p.tell(e, e.At, "image", step, "image %s of container %s was pulled in %s", f.Image, e.Container, spell(f.Took))
		} else if f.Reason == "" {
			p.tell(e, e.At, "image", step, "image %s of container %s is there", f.Image, e.Container)
		} else {
			p.tell(e, e.At, "image", fault, "image %s of container %s could not be pulled: %s", f.Image, e.Container, withWord(f.Reason, f.Error))
		}
	case *record.Sync:
		p.sync(e, f, pod)
	case *record.Status:
		p.setStatus(e, f, pod)
	case *record.Resize:
		if f.State != "" {
			p.tell(e, e.At, "resize", step, "its resize is in state %s %s", f.State, f.Reason)
		} else {
			p.tell(e, e.At, "resize", step, "its resize is done")
		}
	case *record.Devices:
		switch {
		case f.Unhealthy > 0:
			p.tell(e, e.At, "devices", fault, "%d of the devices %s of container %s became unhealthy", f.Unhealthy, f.Resource, e.Container)
		case f.Unknown > 0:
			p.tell(e, e.At, "devices", fault, "the health of %d of the devices %s of container %s is unknown", f.Unknown, f.Resource, e.Container)
		default:
			p.tell(e, e.At, "devices", step, "the devices %s of container %s are healthy again", f.Resource, e.Container)
		}
	case *record.Decision:
		p.decision(e, f)
	case *record.SandboxRun:
		if f.Took >= slowSandbox {
			p.tell(e, e.At, "sandbox", step, "the runtime took %s for its sandbox", spell(f.Took))
		}
	}
}

// slowSandbox is the duration from which the creation of a sandbox gets a moment. A failed
// creation is reported as a failed sync.
const slowSandbox = 5 * time.Second

// begin adds a moment for the start of the agent, which also says how the previous process ended.
func (p *past) begin(e *record.Entry, f *record.Begin) {
	p.node = cmp.Or(f.Node, p.node)
	rank := step // about a pod, the restart of its containers says more
	if p.ofNode {
		rank = verdictOn
	}
	if len(p.boots) > 0 {
		switch last := p.boots[len(p.boots)-1]; {
		case last.boot != e.Boot && p.stopped:
			p.tell(e, e.At, "begin", rank, "the machine was started again, and the agent with it")
		case last.boot != e.Boot:
			p.tell(e, e.At, "begin", rank, "the machine was started again after it had gone down without notice (power, reset or kernel)").Problem = true
		case p.stopped:
			p.tell(e, e.At, "begin", step, "the agent was started again %s", f.Version)
		default:
			p.tell(e, e.At, "begin", fault, "the agent was started again %s, after it had been killed or had crashed", f.Version)
		}
	} else {
		p.tell(e, e.At, "begin", aside, "the agent was started %s", f.Version)
	}
	p.away(e.At)
	p.stopped = false
	p.boots = append(p.boots, begin{e.At, e.Boot})
}

// condition adds a moment for a change of a condition of the node.
func (p *past) condition(e *record.Entry, f *record.Condition) {
	if f.Type == record.RuntimeUnavailable {
		if f.On {
			p.tell(e, e.At, "condition", fault, "the container runtime did not answer: %s", cmp.Or(f.Reason, "another error"))
		} else {
			p.tell(e, e.At, "condition", step, "the container runtime answered again")
		}
		return
	}
	p.pressure = append(p.pressure, pressurePast{e.At, *f})
	if f.On {
		p.tell(e, e.At, "condition", fault, "the node had %s (%s)", f.Type, f.Reason)
	} else {
		p.tell(e, e.At, "condition", step, "the node had no %s any more", f.Type)
	}
}

// replaceWithin is the longest time between the removal of a static pod and the addition of another
// one with its name that counts as one change of the manifest.
const replaceWithin = 30 * time.Second

// want adds a moment for a change of the pod in its source.
func (p *past) want(e *record.Entry, f *record.Wanted, pod *podPast) {
	last := p.wanted
	if last == nil {
		last = &wantedPast{uids: map[types.UID]bool{}}
		p.wanted = last
	}
	source := ""
	if f.Source != "" {
		source = " (" + f.Source + ")"
	}
	switch changes := imageChanges(last.Containers, f.Containers); {
	case f.Op == "REMOVE" && !last.at.IsZero() && last.uid != e.Pod.UID:
		// The next version was added before this removal, and its change is already reported.
		return
	case f.Op == "REMOVE" && last.Op == "DELETE" && last.uid == e.Pod.UID:
		// The pod ended because of the earlier deletion. The removal adds no reason.
		p.tell(e, e.At, "wanted", step, "it was removed from its source%s", source)
		p.status = append(p.status, statusPast{at: e.At, gone: true})
	case f.Op == "REMOVE":
		pod.ends = append(pod.ends, causePast{e.At, "it was removed from its source" + source})
		p.tell(e, e.At, "wanted", verdictOn, "it was removed from its source%s", source)
		p.status = append(p.status, statusPast{at: e.At, gone: true})
	case f.Op == "DELETE":
		pod.ends = append(pod.ends, causePast{e.At, "its deletion was asked for"})
		p.tell(e, e.At, "wanted", verdictOn, "its deletion was asked for")
	case last.at.IsZero():
		p.tell(e, e.At, "wanted", step, "it was added to its source%s", source)
	case last.uid == e.Pod.UID && last.Op == "REMOVE":
		pod.ends = append(pod.ends, causePast{e.At, ""})
		p.tell(e, e.At, "wanted", step, "it was added to its source%s again", source)
	case last.uid == e.Pod.UID && (f.Op == "UPDATE" || last.Generation != f.Generation || changes != ""):
		p.tell(e, e.At, "wanted", step, "its definition was changed%s", changes)
	case last.uid == e.Pod.UID: // the agent was restarted; the pod has not changed
	case last.Op != "REMOVE" || e.At.Sub(last.at) < replaceWithin:
		text := definitionChanged + changes
		if last.uids[e.Pod.UID] {
			text = "its definition was changed back to an earlier one" + changes
		}
		if before := p.pods[last.uid]; before != nil {
			before.ends = append(before.ends, causePast{cmp.Or(last.removedAt, e.At), definitionChanged + changes})
		}
		for i := range p.moments {
			if m := &p.moments[i]; m.Kind == "wanted" && m.UID == string(last.uid) && e.At.Sub(m.At) < replaceWithin && m.rank == verdictOn {
				m.replaced = true
			}
		}
		p.tell(e, e.At, "wanted", step, "%s", text)
	default:
		p.tell(e, e.At, "wanted", step, "it was added to its source%s again", source)
	}
	if last.removedAt = (time.Time{}); f.Op == "REMOVE" {
		last.removedAt = e.At
	}
	containers := last.Containers
	last.Wanted, last.uid, last.at = *f, e.Pod.UID, e.At
	if len(f.Containers) == 0 {
		last.Containers = containers
	}
	last.uids[e.Pod.UID] = true
}

// imageChanges returns which images differ, for the end of a sentence.
func imageChanges(was, is []record.Image) string {
	out := ""
	for _, n := range is {
		for _, o := range was {
			if o.Container == n.Container && o.Image != n.Image {
				out += fmt.Sprintf(": image of container %s from %s to %s", n.Container, o.Image, n.Image)
			}
		}
	}
	return out
}

// judge adds a moment for a decision to admit, reject or end the pod.
func (p *past) judge(e *record.Entry, f *record.Verdict, pod *podPast) {
	again := pod.waits
	pod.waits = f.Kind == podlife.Waits
	if f.Admitted {
		pod.ends = append(pod.ends, causePast{e.At, ""})
		text := "it was admitted"
		if again {
			text = "it was admitted after its wait"
			for i := range p.moments {
				if m := &p.moments[i]; m.UID == string(e.Pod.UID) && m.verdict != nil && m.verdict.Kind == podlife.Waits {
					m.rank, m.Problem = step, false // it explains nothing any more
				}
			}
		}
		p.tell(e, e.At, "verdict", step, "%s", text)
		return
	}
	words := p.verdictWords(f, e.At)
	if !pod.waits {
		pod.ends = append(pod.ends, causePast{e.At, words})
	}
	m := p.tell(e, e.At, "verdict", verdictOn, "%s", words)
	m.verdict, m.Problem = f, true
}

// verdictWords describes a verdict in a sentence, with the node's pressure that caused it.
func (p *past) verdictWords(f *record.Verdict, at time.Time) string {
	words := cmp.Or(kindWords[f.Kind], "it was ended ("+f.Reason+")")
	switch f.Kind {
	case podlife.Rejected, podlife.Waits:
		words += ": " + f.Reason
	case podlife.Evicted:
		for i := len(p.pressure) - 1; i >= 0; i-- {
			if c := p.pressure[i]; c.On && !c.at.After(at) {
				words += fmt.Sprintf(" (%s since %s)", c.Type, p.when(c.at))
				break
			}
		}
	}
	if f.Message != "" {
		words += ": " + strings.TrimSuffix(strings.TrimSpace(f.Message), ".")
	}
	return words
}

// instance records the state of an instance of a container.
func (p *past) instance(e *record.Entry, f *record.Instance) {
	i := p.instances[f.ID]
	if i == nil {
		i = &instance{container: e.Container, uid: e.Pod.UID, life: e.Pod.Life, boot: p.bootAt(f.Started, e.Boot), learned: e.At}
		p.instances[f.ID] = i
		p.order = append(p.order, i)
	}
	was := i.Instance
	i.Instance = *f
	if f.Started.IsZero() {
		i.Started = was.Started
	}
	if f.State == "exited" && !i.ended {
		i.ended, i.endedAt, i.endedInBoot = true, f.Finished, e.Boot
		if i.endedAt.IsZero() {
			i.endedAt = e.At
		}
	}
	if f.State == "unknown" {
		p.tell(e, e.At, "instance", fault, "the container runtime could not tell the state of container %s", e.Container)
	}
}

// bootAt returns the boot of the machine in which a container was started, of which the first entry is
// of the boot now. The entry of the start may be lost: the last second before a power failure is not
// recorded.
func (p *past) bootAt(started time.Time, now string) string {
	for i := len(p.boots) - 1; i > 0; i-- {
		if b := p.boots[i]; b.boot != now || !started.Before(b.at) {
			break
		}
		if before := p.boots[i-1]; before.boot != now && !started.IsZero() {
			return before.boot
		}
	}
	return now
}

// probe adds a moment for a probe result.
func (p *past) probe(e *record.Entry, f *record.Probe) {
	if f.OK {
		p.tell(e, e.At, "probe", aside, "the %s probe of container %s succeeded", f.Type, e.Container)
		return
	}
	if f.Type != "readiness" {
		p.failed[f.ID] = f
	}
	p.tell(e, e.At, "probe", fault, "%s", p.probeWords(f, " of container "+e.Container))
}

// probeWords describes a failed probe in a sentence.
func (p *past) probeWords(f *record.Probe, of string) string {
	words := "the " + f.Type + " probe" + of + " failed"
	if f.Times > 0 {
		words += " " + often(f.Times)
	}
	switch {
	case f.Code > 0:
		words += fmt.Sprintf(", HTTP %d from %s", f.Code, f.Target)
	case f.Error != "" && f.Target != "":
		words += fmt.Sprintf(", %s: %s", f.Target, f.Error)
	case f.How == "exec" && f.Error != "":
		words += ", its command: " + f.Error
	case f.How == "exec":
		words += ", its command exited with an error"
	case f.Target != "":
		words += ", " + f.Target
	}
	if !f.Since.IsZero() && f.Times > 1 {
		words += ", since " + p.when(f.Since)
	}
	return words
}

// often returns a number of times in words.
func often(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	case 3, 4, 5, 6, 7, 8, 9:
		return []string{"three", "four", "five", "six", "seven", "eight", "nine"}[n-3] + " times"
	default:
		return strconv.Itoa(n) + " times"
	}
}

// sync adds moments for failed syncs, and for the first success after them.
func (p *past) sync(e *record.Entry, f *record.Sync, pod *podPast) {
	failing := pod.sync != nil && pod.sync.Reason != ""
	if n := len(pod.hooks); n > 0 && pod.hooks[n-1].to.IsZero() {
		pod.hooks[n-1].to = e.At
	}
	if f.Reason == string(podlife.HookFailed) {
		pod.hooks = append(pod.hooks, hookSpan{from: e.At})
	}
	switch {
	case f.Reason != "":
		// Other facts report these reasons.
		pod.told = false
		if slices.Contains([]string{"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "SignatureValidationFailed", "InvalidImageName"}, f.Reason) {
			break
		}
		text := "it could not be synced: " + withWord(f.Reason, f.Error)
		if len(f.Volumes) > 0 {
			text += "; volume " + strings.Join(f.Volumes, ", ") + " is not mounted"
			if f.Hung {
				text += ", and the disk or the driver does not answer"
			}
		}
		p.tell(e, e.At, "sync", fault, "%s", text)
		pod.told = true
	case failing && pod.told && pod.at(e.At) == "":
		p.tell(e, e.At, "sync", aside, "its sync succeeded again, after %s", spell(e.At.Sub(pod.syncAt)))
	}
	if f.Reason == "" || !failing {
		pod.syncAt = e.At
	}
	pod.sync = f
}

// withWord returns a reason, followed by the class of the error if that is known.
func withWord(reason, word string) string {
	if word == "" || word == "another error" {
		return reason
	}
	return reason + " (" + word + ")"
}

// setStatus adds moments for changes of readiness and of the phase.
func (p *past) setStatus(e *record.Entry, f *record.Status, pod *podPast) {
	was := cmp.Or(pod.ready, &record.Status{})
	pod.ready = f
	p.status = append(p.status, statusPast{at: e.At, Status: *f})
	phase := v1.PodPhase(f.Phase)
	switch {
	case f.Phase != was.Phase && (phase == v1.PodFailed || phase == v1.PodSucceeded):
		p.tell(e, e.At, "status", step, "it had ended: %s", strings.TrimSpace(f.Phase+" "+f.Reason))
	case f.Ready && !was.Ready:
		p.tell(e, e.At, "status", step, "it was ready")
	case !f.Ready && was.Ready:
		p.tell(e, e.At, "status", step, "it was not ready any more")
	}
}

// decision records which instances were ended and why, and adds moments for waits and new
// sandboxes.
func (p *past) decision(e *record.Entry, f *record.Decision) {
	for _, list := range [][]record.Act{f.Result.Init, f.Result.Regular} {
		for _, a := range list {
			switch {
			case a.Do == "end":
				if _, known := p.endings[a.ID]; !known {
					p.endings[a.ID] = a
				}
			case a.Do == "wait" && a.Why == podlife.CrashLoop && !a.Until.Truncate(time.Second).Equal(p.waits[a.Name]):
				p.waits[a.Name] = a.Until.Truncate(time.Second)
				m := p.tell(e, e.At, "decision", step, "container %s had to wait until %s for its next start (%s)", a.Name, p.when(a.Until), a.Why)
				m.Container = a.Name
			}
		}
	}
	if f.Result.Make && f.Result.Attempt > 0 {
		words := "its sandbox was made again: " + f.Result.Lack
		p.tell(e, e.At, "decision", fault, "%s", words)
		for _, r := range f.Input.Runs {
			if r.State == "running" {
				p.lost[r.ID] = reason{words, "the end of its sandbox"}
			}
		}
	}
	if len(f.Result.Reset) > 0 {
		p.tell(e, e.At, "decision", step, "all its containers were started over, as a restart rule says")
	}
	if len(f.Result.Surplus) > 0 {
		p.tell(e, e.At, "decision", fault, "%d instances ran beside newer ones, and were ended", len(f.Result.Surplus))
	}
}

// link orders the instances of each container, and adds moments for their starts and ends.
func (p *past) link() {
	slices.SortStableFunc(p.order, func(a, b *instance) int { return cmp.Compare(a.begunAt().UnixNano(), b.begunAt().UnixNano()) })
	p.linkHooks()
	last := map[string]*instance{}
	for _, i := range p.order {
		i.before, last[i.container] = last[i.container], i
		e := &record.Entry{Pod: record.Pod{UID: i.uid}, Container: i.container}
		if !i.Started.IsZero() {
			text := "container " + i.container + " was started"
			if i.Restarts > 0 {
				text += fmt.Sprintf(" (restart %d)", i.Restarts)
			}
			p.tell(e, i.Started, "instance", startOf, "%s", text).began = i
		}
		if i.ended && !i.Started.IsZero() {
			text := "container " + i.container + " ended after " + spell(max(0, i.endedAt.Sub(i.Started)))
			m := p.tell(e, i.endedAt, "instance", endOf, "%s: %s", text, p.ending(i).why)
			m.ended, m.Problem = i, i.ExitCode == nil || *i.ExitCode != 0
		}
	}
}

// linkHooks finds the instances whose postStart hooks failed: the one that was started last before a sync failed
// for that reason, and further ones of its container that began and ended while syncs went on to fail so.
func (p *past) linkHooks() {
	for uid, pod := range p.pods {
		for _, span := range pod.hooks {
			var last *instance
			for _, i := range p.order {
				switch {
				case i.uid != uid || i.Started.IsZero():
				case !i.Started.After(span.from):
					last = i
				case last != nil && i.container == last.container && i.ended && (span.to.IsZero() || !i.endedAt.After(span.to)):
					p.loseByHook(i)
				}
			}
			if last != nil {
				p.loseByHook(last)
			}
		}
	}
}

// loseByHook sets the reason of an instance whose postStart hook failed. A lost sandbox is the better reason.
func (p *past) loseByHook(i *instance) {
	if _, known := p.lost[i.ID]; !known {
		p.lost[i.ID] = reason{kindWords[podlife.HookFailed], "a failed postStart hook"}
	}
}

func (i *instance) begunAt() time.Time {
	if i.Started.IsZero() {
		return i.learned
	}
	return i.Started
}

// pod returns the past of the instance's pod; it is never nil.
func (p *past) pod(i *instance) *podPast { return cmp.Or(p.pods[i.uid], &podPast{}) }

// reason says why an instance ended.
type reason struct {
	why   string // a sentence
	after string // a noun phrase that follows "after"
}

// ending returns why an instance ended.
func (p *past) ending(i *instance) reason {
	why := p.pod(i).at(i.endedAt)
	switch act := p.endings[i.ID]; act.Why {
	case "":
	case podlife.LivenessFailed, podlife.StartupFailed:
		r := reason{kindWords[act.Why], "a failed liveness probe"}
		if act.Why == podlife.StartupFailed {
			r.after = "a failed startup probe"
		}
		if f := p.failed[i.ID]; f != nil {
			r.why = p.probeWords(f, "")
		}
		return r
	case podlife.Changed:
		return reason{kindWords[act.Why], changedDefinition}
	case podlife.Resized:
		return reason{kindWords[act.Why], "a change of its resources"}
	default:
		return endAs(cmp.Or(kindWords[act.Why], string(act.Why)))
	}
	switch {
	case i.Reason == "OOMKilled" && i.Limit > 0:
		return reason{"it was killed for using more than its memory limit of " + memory(i.Limit), "an OOM kill (limit " + memory(i.Limit) + ")"}
	case i.Reason == "OOMKilled":
		return reason{"it was killed as the memory that it may use was full", "an OOM kill"}
	case i.endedInBoot != i.boot:
		return reason{"the machine went down", "a restart of the machine"}
	case p.lost[i.ID] != reason{}:
		return p.lost[i.ID]
	case strings.HasPrefix(why, definitionChanged):
		return reason{why, changedDefinition}
	case why != "":
		return endAs(why)
	case i.ExitCode == nil:
		return reason{"its exit code is not known", "its end"}
	default:
		code := strconv.Itoa(int(*i.ExitCode))
		return reason{"it ended with exit code " + code + signal(&v1.ContainerStateTerminated{ExitCode: *i.ExitCode}), "an end with exit code " + code}
	}
}

// Texts for a change of the pod's definition: the beginning of a sentence, and a noun phrase.
const (
	definitionChanged = "its definition was changed"
	changedDefinition = "a change of its definition"
)

// endAs returns the reason for a sentence that has no noun phrase of its own.
func endAs(why string) reason { return reason{why, "its end, as " + why} }

// memory returns bytes with a unit.
func memory(n int64) string {
	for _, u := range []struct {
		of   int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.of && n%u.of == 0 {
			return fmt.Sprintf("%d %s", n/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// started returns when and why an instance was started, for the end of a sentence; "" if it was
// not started.
func (p *past) started(i *instance) string {
	if i == nil || i.Started.IsZero() {
		return ""
	}
	text := "; the container had been started at " + p.when(i.Started)
	if i.before != nil {
		text += " after " + p.ending(i.before).after
	}
	return text
}

// when returns a time of day, with the date if it differs from the date of the question.
func (p *past) when(t time.Time) string {
	day := p.now
	if !p.q.At.IsZero() {
		day = p.q.At
	}
	return local.When(t, day)
}

// between returns the moments between two times. The zero time is no limit.
func (p *past) between(since, until time.Time) (out []local.Moment) {
	for i := range p.moments {
		m := &p.moments[i]
		if m.replaced || !since.IsZero() && m.At.Before(since) || !until.IsZero() && m.At.After(until) {
			continue
		}
		out = append(out, m.Moment)
	}
	return out
}

// Limits for the moments in an answer about a time: how long before and after it, and how many
// before it.
const (
	leadTime  = 15 * time.Minute
	trailTime = 2 * time.Minute
	maxLead   = 12
)

// at answers why the pod was in its state at the time in question. If nothing happened then, the
// answer names the last change before it.
func (p *past) at() (string, []local.Moment) {
	end := p.q.At.Add(p.q.Within)
	var focus, last *moment
	for i := range p.moments {
		m := &p.moments[i]
		if m.replaced || !m.At.Before(end) {
			continue
		}
		if last == nil || m.rank > aside {
			last = m
		}
		// focus is the last moment with the highest rank within the time of the question.
		if !m.At.Before(p.q.At) && m.rank > aside && (focus == nil || m.rank >= focus.rank) {
			focus = m
		}
	}
	around := p.around(end)
	switch {
	case focus != nil:
		return p.answer(focus), around
	case last == nil && len(p.moments) > 0:
		return "is not in the record at " + p.when(p.q.At), p.between(time.Time{}, p.moments[0].At.Add(trailTime))
	case last == nil:
		return "is not in the record", nil
	}
	// The state at that time began with the last start, end or verdict, or else with the last fault.
	cause := last
	for i := range p.moments {
		m := &p.moments[i]
		if rank := min(m.rank, endOf); !m.replaced && m.At.Before(end) && rank >= fault && (rank > cause.rank || rank == min(cause.rank, endOf) && !m.At.Before(cause.At)) {
			cause = m
		}
	}
	state := p.stateAt(end)
	if state == notReadyThen {
		for i := range p.moments {
			if m := &p.moments[i]; !m.replaced && m.rank == fault && m.At.Before(end) && !m.At.Before(cause.At) {
				cause = m
			}
		}
	}
	if len(around) == 0 {
		around = []local.Moment{cause.Moment}
	}
	before := p.answer(cause)
	if !strings.HasPrefix(before, "at ") {
		before = "it " + before
	}
	return state + " at " + p.when(p.q.At) + ", and nothing happened then; before, " + before, around
}

// notReadyThen is the state of a pod that ran, and was not ready.
const notReadyThen = "ran, and was not ready"

// around returns the moments that led to a time, and those just after it.
func (p *past) around(end time.Time) []local.Moment {
	out := p.between(p.q.At.Add(-leadTime), end.Add(trailTime))
	n := 0
	for _, m := range out {
		if m.At.Before(end) {
			n++
		}
	}
	return out[max(0, n-maxLead):]
}

// stateAt returns the state of the pod at a time, as a phrase without a subject that begins a
// sentence, such as "ran and was ready".
func (p *past) stateAt(t time.Time) string {
	if p.ofNode {
		return "was as before"
	}
	state := "was known"
	for _, s := range p.status {
		if s.at.After(t) {
			break
		}
		switch {
		case s.gone:
			state = "was gone"
		case s.Phase == string(v1.PodFailed), s.Phase == string(v1.PodSucceeded):
			state = "had ended (" + s.Phase + ")"
		case s.Ready:
			state = "ran and was ready"
		case s.Phase == string(v1.PodRunning):
			state = notReadyThen
		default:
			state = "was not up yet"
		}
	}
	return state
}

// answer returns a moment with its chain of causes, as a sentence without a subject.
func (p *past) answer(m *moment) string {
	at := p.when(m.At)
	switch {
	case m.began != nil && m.began.before != nil:
		before := m.began.before
		return "restarted at " + at + ": " + p.ending(before).why + p.started(before)
	case m.began != nil:
		return "started container " + m.began.container + " at " + at + " for the first time"
	case m.ended != nil:
		return "lost container " + m.ended.container + " at " + at + ": " + p.ending(m.ended).why + p.started(m.ended)
	case m.verdict != nil && (m.verdict.Kind == podlife.Rejected || m.verdict.Kind == podlife.Waits):
		return "did not start at " + at + ": " + m.Text
	case m.verdict != nil:
		return "ended at " + at + ": " + m.Text
	default:
		return "at " + at + ": " + m.Text
	}
}
