// Package podrefs asks an API server for what a node's pods need beside themselves:
// services and runtime classes ([Catalog]), service account tokens ([TokenRequester],
// [TokenKeeper]), trust bundles ([Bundles]), certificates ([CertificateIssuer]), and the
// CSI drivers, attachments and claims of volumes ([Storage]).
//
// ConfigMaps, Secrets and volumes that pods name come with the pods: see package podsync.
//
// Every type needs a client and works without the others. Answers of the server are kept
// while it cannot be reached, and over a restart if a Memory is given; each type says for
// how long a caller waits.
//
// Tier: beta.
package podrefs
