"""The codes of the currencies that are in use (ISO 4217)."""

from __future__ import annotations

from difflib import get_close_matches

_IN_USE = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLF CLP CNY
    COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR
    IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR
    MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
    SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XCG
    XDR XOF XPF YER ZAR ZMW ZWG
"""

CODES = frozenset(_IN_USE.split())

_SIGNS = {
    "$": "USD",
    "US$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "RMB": "CNY",
    "KČ": "CZK",
    "ZŁ": "PLN",
    "₹": "INR",
}


def wrong_code(code: str) -> tuple[str, str] | None:
    """What is wrong with a currency's code, and the remedy; None for one that is in use."""
    if code in CODES:
        return None
    near = _SIGNS.get(code) or next(iter(get_close_matches(code, sorted(CODES), n=1)), None)
    hint = f"did you mean {near}?" if near else "write its ISO 4217 code, such as USD or EUR"
    return f"'{code}' is no currency code", hint
