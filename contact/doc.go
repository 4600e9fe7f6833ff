// Package contact keeps who somebody is: contacts, and by what they are known.
//
// A contact has identities: an e-mail address, a phone number, an id at a messenger or
// in another system. Within a tenant an identity is of one contact, however it is
// written: e-mail without regard to case, phone numbers in E.164, all of it after
// Unicode's NFKC (docs/contacts.md). [Upsert] makes and changes contacts by what they
// are known as, many in a statement, in the caller's transaction.
//
// Nothing is merged on hope. Identities of one person that are of two contacts are a
// conflict, which is kept for somebody to decide: [Merge] makes one contact another
// name of the other, and [Unmerge] takes them apart as they were.
package contact
