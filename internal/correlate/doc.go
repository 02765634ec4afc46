// Package correlate decides which events are combined into one Event object, and which
// events are dropped because an object has too many. The limits are those of client-go's
// correlator. Events of one object and reason that differ only in their messages are
// combined from the tenth message on; after ten minutes without such an event the count
// starts again. An object may have 25 events at once and then one event in five minutes,
// so that the events of one pod do not displace the events of other pods.
package correlate
