# What Python's email package reads of mails: one JSON object a file.
import email, email.policy, json, sys

for path in sys.argv[1:]:
    with open(path, "rb") as f:
        m = email.message_from_binary_file(f, policy=email.policy.default)
    out = {"subject": m["subject"], "from": str(m["from"]), "to": str(m["to"]), "defects": [type(d).__name__ for d in m.defects], "reports": []}
    for part in m.walk():
        if part.get_content_type() == "message/delivery-status":
            for group in part.get_payload():
                if group["final-recipient"]:
                    out["reports"].append([group["action"], group["status"].split()[0]])
    body = m.get_body(("plain",))
    out["text"] = body.get_content() if body else ""
    print(json.dumps(out))
